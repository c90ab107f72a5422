// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
)

// EventRow declares events.
func EventRow() *resource.Row {
	return resource.Of[corev1.EventList](resource.Kind[*corev1.Event]{
		Group: "", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		AnyFinalizer:             true,
		MetaLast:                 true,
		ValidateName:             report.SegmentName,
		MetaOnUpdate:             resource.MetaRules{SkipUpdateChecks: true},
		Validate:                 validateEvent,
		ValidateUpdate:           validateEventUpdate,
		Fields:                   eventFields,
		FieldPaths:               []string{"involvedObject", "reason", "reportingComponent", "source", "type"},
		SelectableFields:         []string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"},
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
			{Name: "Subobject", Type: "string", Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], Priority: column.Wide},
			{Name: "Source", Type: "string", Description: corev1.Event{}.SwaggerDoc()["source"], Priority: column.Wide},
			{Name: "Message", Type: "string", Description: corev1.Event{}.SwaggerDoc()["message"]},
			{Name: "First Seen", Type: "string", Description: corev1.Event{}.SwaggerDoc()["firstTimestamp"], Priority: column.Wide},
			{Name: "Count", Type: "string", Description: corev1.Event{}.SwaggerDoc()["count"], Priority: column.Wide},
			{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"], Priority: column.Wide},
		},
		Cells: eventCells,
	})
}

// EventOf is an event of events.k8s.io as this group has it. It shares what it points to:
// an event is converted to be encoded.
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

// ofOlderEvents takes over what the older version calls otherwise.
func ofOlderEvents(in *eventsv1beta1.Event, out *corev1.Event) {
	out.InvolvedObject, out.Message, out.Source = in.Regarding, in.Note, in.DeprecatedSource
	out.FirstTimestamp, out.LastTimestamp, out.Count = in.DeprecatedFirstTimestamp, in.DeprecatedLastTimestamp, in.DeprecatedCount
	out.ReportingController = in.ReportingController
}

func ofEvents(obj resource.Object) (resource.Object, error) {
	e, ok := obj.(*eventsv1.Event)
	if !ok {
		return nil, fmt.Errorf("convert %T: not an event of events.k8s.io", obj)
	}
	return EventOf(e), nil
}
