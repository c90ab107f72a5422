// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"keelson.dev/apiserver/resource"
)

// eventRow declares events.
func eventRow() *resource.Row {
	return resource.Kind[eventsv1.Event, eventsv1.EventList]{
		Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true,
		ShortNames: []string{"ev"},

		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		DefaultGarbageCollection: "Unsupported",
	}.Row()
}
