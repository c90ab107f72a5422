// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// eventRow declares events.
func eventRow() *resource.Row {
	return resource.Of[eventsv1.EventList](resource.Kind[*eventsv1.Event]{
		Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		MetaOnUpdate:             resource.MetaRules{CreateChecksFirst: true}, // what changed is told where validateEventUpdate has a place for it
		Validate:                 validateEvent,
		ValidateUpdate:           validateEventUpdate,
		Fields:                   eventFields,
		SelectableFields:         []string{"reason", "regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath", "reportingController", "type"},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		DefaultGarbageCollection: "Unsupported",
		TTL:                      eventTTL,

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
