// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events declares the events of events.k8s.io/v1. They are stored as events of the core
// group, so that clients of each group see all events.
package events

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/core"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{eventRow(registry.Codec(core.EventRow()))}
}

// eventRow returns the row of the kind table for the resource events.
func eventRow(stored store.Codec) *resource.Row {
	return resource.Of[eventsv1.EventList](resource.Kind[*eventsv1.Event]{
		Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		Codec: codec{core: stored}, StoredAs: coreForm().Kind, StoredForms: []resource.StoredForm{coreForm()},
		StoredFields: map[string]string{
			"regarding.kind":            "involvedObject.kind",
			"regarding.namespace":       "involvedObject.namespace",
			"regarding.name":            "involvedObject.name",
			"regarding.uid":             "involvedObject.uid",
			"regarding.apiVersion":      "involvedObject.apiVersion",
			"regarding.resourceVersion": "involvedObject.resourceVersion",
			"regarding.fieldPath":       "involvedObject.fieldPath",
			"reportingController":       "reportingComponent",
		},

		Validate:       validateEvent,
		ValidateUpdate: validateEventUpdate,
		Fields:         eventFields,
		SelectableFields: []string{"reason", "regarding.kind", "regarding.namespace", "regarding.name",
			"regarding.uid", "regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath",
			"reportingController", "type"},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		DefaultGarbageCollection: "Unsupported",
		TTL:                      eventTTL,

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

// fromCore converts an event of the core group. The result shares memory with e, so the caller must
// not use e afterwards.
func fromCore(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject,
		Related: e.Related, Note: e.Message, Type: e.Type, DeprecatedSource: e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

// codec encodes and decodes events in the form of the core group.
type codec struct{ core store.Codec }

// Lossy implements store.Codec.
func (codec) Lossy() bool { return false }

func (c codec) Encode(obj store.Object) ([]byte, error) {
	e, ok := obj.(*eventsv1.Event)
	if !ok {
		return nil, fmt.Errorf("encode %T: not an event", obj)
	}
	return c.core.Encode(core.EventOf(e))
}

func (c codec) Decode(data []byte, rev int64) (store.Object, error) {
	obj, err := c.core.Decode(data, rev)
	if err != nil {
		return nil, err
	}
	e, ok := obj.(*corev1.Event)
	if !ok {
		return nil, fmt.Errorf("decode %T: not an event", obj)
	}
	return fromCore(e), nil
}

func validateEvent(_ context.Context, e *eventsv1.Event) field.ErrorList {
	return core.ValidateEvent(core.EventOf(e))
}

func validateEventUpdate(_ context.Context, e, old *eventsv1.Event) field.ErrorList {
	return core.ValidateEventUpdate(core.EventOf(e), core.EventOf(old))
}

// eventTTL returns the time to live of an event in seconds.
func eventTTL(*eventsv1.Event) int64 { return 60 * 60 }

func eventCells(e *eventsv1.Event, env resource.CellEnv) []any {
	return core.EventCells(core.EventOf(e), env)
}

func eventFields(e *eventsv1.Event) fields.Set {
	return fields.Set{
		"reason":                    e.Reason,
		"regarding.kind":            e.Regarding.Kind,
		"regarding.namespace":       e.Regarding.Namespace,
		"regarding.name":            e.Regarding.Name,
		"regarding.uid":             string(e.Regarding.UID),
		"regarding.apiVersion":      e.Regarding.APIVersion,
		"regarding.resourceVersion": e.Regarding.ResourceVersion,
		"regarding.fieldPath":       e.Regarding.FieldPath,
		"reportingController":       e.ReportingController,
		"type":                      e.Type,
	}
}

// coreForm is the form in which the events of both groups are stored.
func coreForm() resource.StoredForm {
	return resource.StoredForm{
		Kind: corev1.SchemeGroupVersion.WithKind("Event"),
		New:  func() resource.Object { return &corev1.Event{} },
		ToStorage: func(obj resource.Object) (resource.Object, error) {
			e, ok := obj.(*corev1.Event)
			if !ok {
				return nil, fmt.Errorf("convert %T: not an event", obj)
			}
			return fromCore(e), nil
		},
	}
}
