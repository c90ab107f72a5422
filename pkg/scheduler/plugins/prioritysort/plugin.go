// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prioritysort orders pending pods by priority, then by age in the queue.
package prioritysort

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "PrioritySort"

// Plugin implements scheduling.QueueSortPlugin.
type Plugin struct{}

var _ scheduling.QueueSortPlugin = Plugin{}

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Less implements scheduling.QueueSortPlugin.
func (Plugin) Less(a, b scheduling.QueuedPod) bool {
	if pa, pb := Priority(a.Pod), Priority(b.Pod); pa != pb {
		return pa > pb
	}
	return a.Since < b.Since
}

// Priority is a pod's priority; 0 when unset.
func Priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
