// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// eventRow declares events.
func eventRow() *resource.Row {
	return resource.Kind[corev1.Event, corev1.EventList]{
		Group: "", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		Fields:                   eventFields,
		SelectableFields:         []string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		DefaultGarbageCollection: "Unsupported",
		TTL:                      eventTTL,
	}.Row()
}
