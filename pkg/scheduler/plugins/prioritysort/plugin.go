// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prioritysort orders pending pods by priority, and pods of the same priority by the time
// at which they entered the queue.
package prioritysort

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "PrioritySort"

// New returns the plugin.
func New() scheduling.Plugin { return scheduling.Plugin{Name: Name, Less: less} }

func less(a, b scheduling.QueuedPod) bool {
	if pa, pb := Priority(a.Pod), Priority(b.Pod); pa != pb {
		return pa > pb
	}
	return a.Since < b.Since
}

// Priority returns a pod's priority, or 0 if it is unset.
func Priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
