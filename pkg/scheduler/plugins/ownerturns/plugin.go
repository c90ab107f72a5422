// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerturns orders pending pods by priority. Within a priority, namespaces take turns, so
// that a namespace with many pods does not delay pods of other namespaces. The plugin is not
// enabled by default; a configuration enables it as queueSort instead of PrioritySort.
package ownerturns

import (
	"keelson.dev/keelson/pkg/scheduler/plugins/prioritysort"
	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "OwnerTurns"

// New returns the plugin.
func New() scheduling.Plugin { return scheduling.Plugin{Name: Name, Less: less} }

func less(a, b scheduling.QueuedPod) bool {
	if pa, pb := prioritysort.Priority(a.Pod), prioritysort.Priority(b.Pod); pa != pb {
		return pa > pb
	}
	if a.Turn != b.Turn {
		return a.Turn < b.Turn
	}
	return a.Since < b.Since
}
