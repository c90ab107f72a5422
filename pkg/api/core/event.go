// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
)

// EventRow returns the row of the kind table for the resource events.
func EventRow() *resource.Row {
	return resource.Of[corev1.EventList](resource.Kind[*corev1.Event]{
		Group: "", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		AnyFinalizer:   true,
		MetaLast:       true,
		ValidateName:   report.SegmentName,
		MetaOnUpdate:   resource.CheckNeither,
		Validate:       validateEvent,
		ValidateUpdate: validateEventUpdate,
		Fields:         eventFields,
		FieldPaths:     []string{"involvedObject", "reason", "reportingComponent", "source", "type"},
		SelectableFields: []string{"involvedObject.kind", "involvedObject.namespace",
			"involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
			"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		DefaultGarbageCollection: "Unsupported",
		TTL:                      eventTTL,
		StoredForms: []resource.StoredForm{{
			Kind:      eventsv1.SchemeGroupVersion.WithKind("Event"),
			New:       func() resource.Object { return &eventsv1.Event{} },
			ToStorage: ofEvents,
		}, resource.NewStoredForm(eventsv1beta1.SchemeGroupVersion.WithKind("Event"), ofOlderEvents)},

		Columns: []metav1.TableColumnDefinition{
			{Name: "Last Seen", Type: "string", Description: corev1.Event{}.SwaggerDoc()["lastTimestamp"]},
			{Name: "Type", Type: "string", Description: corev1.Event{}.SwaggerDoc()["type"]},
			{Name: "Reason", Type: "string", Description: corev1.Event{}.SwaggerDoc()["reason"]},
			{Name: "Object", Type: "string", Description: corev1.Event{}.SwaggerDoc()["involvedObject"]},
			{Name: "Subobject", Type: "string", Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"],
				Priority: column.Wide},
			{Name: "Source", Type: "string", Description: corev1.Event{}.SwaggerDoc()["source"], Priority: column.Wide},
			{Name: "Message", Type: "string", Description: corev1.Event{}.SwaggerDoc()["message"]},
			{Name: "First Seen", Type: "string", Description: corev1.Event{}.SwaggerDoc()["firstTimestamp"],
				Priority: column.Wide},
			{Name: "Count", Type: "string", Description: corev1.Event{}.SwaggerDoc()["count"], Priority: column.Wide},
			{Name: "Name", Type: "string", Format: "name",
				Description: metav1.ObjectMeta{}.SwaggerDoc()["name"], Priority: column.Wide},
		},
		Cells: eventCells,
	})
}

// EventOf converts an event of events.k8s.io to the core group. The result shares memory with e, so
// callers must not change it. They use it to encode, validate or print e.
func EventOf(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding,
		Related: e.Related, Message: e.Note, Type: e.Type, Source: e.DeprecatedSource,
		FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

// ofOlderEvents copies those fields of an event of events.k8s.io/v1beta1 that have other names in
// the core group.
func ofOlderEvents(in *eventsv1beta1.Event, out *corev1.Event) {
	out.InvolvedObject, out.Message, out.Source = in.Regarding, in.Note, in.DeprecatedSource
	out.FirstTimestamp, out.LastTimestamp, out.Count = in.DeprecatedFirstTimestamp, in.DeprecatedLastTimestamp,
		in.DeprecatedCount
	out.ReportingController = in.ReportingController
}

func ofEvents(obj resource.Object) (resource.Object, error) {
	e, ok := obj.(*eventsv1.Event)
	if !ok {
		return nil, fmt.Errorf("convert %T: not an event of events.k8s.io", obj)
	}
	return EventOf(e), nil
}

const (
	maxEventName = 128 // maximum bytes of reporting instance, action and reason
	maxEventNote = 1024
)

func validateEvent(_ context.Context, e *corev1.Event) field.ErrorList {
	var r report.Report
	checkEvent(&r, e, "reportingComponent")
	return r.Errors
}

func validateEventUpdate(ctx context.Context, e, _ *corev1.Event) field.ErrorList {
	return validateEvent(ctx, e)
}

// checkEvent checks the rules that apply to the events of both groups. controller is the name of
// the field with the reporting controller, which differs between the groups.
func checkEvent(r *report.Report, e *corev1.Event, controller string) {
	about := e.InvolvedObject.Namespace
	mismatch := e.Namespace != about
	if e.EventTime.IsZero() {
		if about == "" {
			mismatch = e.Namespace != metav1.NamespaceNone && e.Namespace != metav1.NamespaceDefault
		}
	} else {
		mismatch = about == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem
	}
	if mismatch {
		r.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")
	}
	if !e.EventTime.IsZero() {
		if e.ReportingController == "" {
			r.Required(field.NewPath(controller), "")
		}
		r.QualifiedName(field.NewPath(controller), e.ReportingController)
		checkEventText(r, "reportingInstance", e.ReportingInstance)
		checkEventText(r, "action", e.Action)
		checkEventText(r, "reason", e.Reason)
		if len(e.Message) > maxEventNote {
			r.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %v characters", maxEventNote))
		}
	}
	r.Each(field.NewPath("namespace"), e.Namespace, naming.IsDNS1123Subdomain(e.Namespace))
}

func checkEventText(r *report.Report, name, text string) {
	path := field.NewPath(name)
	if text == "" {
		r.Required(path, "")
	}
	if len(text) > maxEventName {
		r.Invalid(path, "", fmt.Sprintf("can have at most %v characters", maxEventName))
	}
}

// ValidateEvent validates a new event of events.k8s.io that was converted to the core group.
func ValidateEvent(e *corev1.Event) field.ErrorList {
	var r report.Report
	checkEvent(&r, e, "reportingController")
	checkSeries(&r, e)
	if e.EventTime.IsZero() {
		r.Required(field.NewPath("eventTime"), "")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		r.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type))
	}
	for _, stamp := range []struct {
		name string
		set  bool
	}{{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()}} {
		if stamp.set {
			r.Invalid(field.NewPath(stamp.name), "", "needs to be unset")
		}
	}
	if e.Count != 0 {
		r.Invalid(field.NewPath("count"), "", "needs to be unset")
	}
	if e.Source != (corev1.EventSource{}) {
		r.Invalid(field.NewPath("source"), "", "needs to be unset")
	}
	return r.Errors
}

func checkSeries(r *report.Report, e *corev1.Event) {
	if e.Series == nil {
		return
	}
	if e.Series.Count < 2 {
		r.Invalid(field.NewPath("series.count"), "", "should be at least 2")
	}
	if e.Series.LastObservedTime.IsZero() {
		r.Required(field.NewPath("series.lastObservedTime"), "")
	}
}

// ValidateEventUpdate validates an update of an event of events.k8s.io. Both events were converted
// to the core group. Of their content, only the series can change.
func ValidateEventUpdate(e, old *corev1.Event) field.ErrorList {
	var r report.Report
	checkEvent(&r, e, "reportingController")
	if e.Series != nil && (old.Series == nil || *e.Series != *old.Series) {
		checkSeries(&r, e)
	}
	keep := func(name string, is, was any) { r.Immutable(field.NewPath(name), is, was) }
	keep("involvedObject", e.InvolvedObject, old.InvolvedObject)
	keep("reason", e.Reason, old.Reason)
	keep("message", e.Message, old.Message)
	keep("source", e.Source, old.Source)
	keep("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	keep("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	keep("count", e.Count, old.Count)
	keep("reason", e.Reason, old.Reason)
	keep("type", e.Type, old.Type)
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		keep("eventTime", e.EventTime, old.EventTime)
	}
	keep("action", e.Action, old.Action)
	keep("related", e.Related, old.Related)
	keep("reportingController", e.ReportingController, old.ReportingController)
	keep("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return r.Errors
}

func eventCells(e *corev1.Event, env resource.CellEnv) []any {
	first := env.Age(e.FirstTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = env.Age(metav1.Time(e.EventTime))
	}
	last := env.Age(e.LastTimestamp)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		last, count = env.Age(metav1.Time(e.Series.LastObservedTime)), e.Series.Count
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, eventSource(e), strings.TrimSpace(e.Message),
		first, int64(count), e.Name,
	}
}

func eventSource(e *corev1.Event) string {
	component, instance := e.Source.Component, e.Source.Host
	if component == "" {
		component = e.ReportingController
	}
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance == "" {
		return component
	}
	return component + ", " + instance
}

// EventCells returns the cells of an event in the table that kubectl prints. It is exported for the
// package of the group events.k8s.io.
func EventCells(e *corev1.Event, env resource.CellEnv) []any { return eventCells(e, env) }

func eventFields(e *corev1.Event) fields.Set {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}

// eventTTL returns the time to live of an event in seconds.
func eventTTL(*corev1.Event) int64 { return 60 * 60 }
