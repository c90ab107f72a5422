// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events declares events as events.k8s.io/v1 shows them; they are stored
// as the core group's, and each group sees the events of the other.
package events

import (
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/core"
)

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{share(eventRow(), registry.Codec(core.EventRow()))}
}
