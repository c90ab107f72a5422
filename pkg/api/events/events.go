// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/api/core"
)

// fromCore shares what it points to: an event is converted just after it was decoded.
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

// codec stores events as the core group's, where both groups find them.
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

// eventTTL is how many seconds an event is kept.
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

// share makes the row store what the core group's row stores.
func share(row *resource.Row, inner store.Codec) *resource.Row {
	row.Codec, row.StoredAs = codec{core: inner}, corev1.SchemeGroupVersion.WithKind("Event")
	row.StoredFields = map[string]string{
		"regarding.kind":            "involvedObject.kind",
		"regarding.namespace":       "involvedObject.namespace",
		"regarding.name":            "involvedObject.name",
		"regarding.uid":             "involvedObject.uid",
		"regarding.apiVersion":      "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion",
		"regarding.fieldPath":       "involvedObject.fieldPath",
		"reportingController":       "reportingComponent",
	}
	row.StoredForms = []resource.StoredForm{{
		Kind: row.StoredAs,
		New:  func() resource.Object { return &corev1.Event{} },
		ToStorage: func(obj resource.Object) (resource.Object, error) {
			e, ok := obj.(*corev1.Event)
			if !ok {
				return nil, fmt.Errorf("convert %T: not an event", obj)
			}
			return fromCore(e), nil
		},
	}}
	return row
}
