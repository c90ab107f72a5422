// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
)

// eventRow declares events.
func eventRow() *resource.Row {
	return resource.Kind[corev1.Event, corev1.EventList]{
		Group: "", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		AnyFinalizer:             true,
		ValidateName:             report.SegmentName,
		MetaOnUpdate:             resource.MetaRules{NoChanges: true},
		Validate:                 validateEvent,
		ValidateUpdate:           validateEventUpdate,
		Fields:                   eventFields,
		FieldPaths:               []string{"involvedObject", "reason", "reportingComponent", "source", "type"},
		SelectableFields:         []string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"},
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
	}.Row()
}
