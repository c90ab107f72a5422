// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerturns orders pending pods by priority and, within a priority,
// takes their namespaces in turn, so that one namespace with many pods does not
// hold up the others. It is not among the defaults: enable it as queueSort in
// place of PrioritySort.
package ownerturns

import (
	"keelson.dev/keelson/pkg/scheduler/plugins/prioritysort"
	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "OwnerTurns"

// Plugin implements scheduling.QueueSortPlugin.
type Plugin struct{}

var _ scheduling.QueueSortPlugin = Plugin{}

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Less implements scheduling.QueueSortPlugin.
func (Plugin) Less(a, b scheduling.QueuedPod) bool {
	if pa, pb := prioritysort.Priority(a.Pod), prioritysort.Priority(b.Pod); pa != pb {
		return pa > pb
	}
	if a.Turn != b.Turn {
		return a.Turn < b.Turn
	}
	return a.Since < b.Since
}
