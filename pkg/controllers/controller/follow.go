// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Follower passes changes of pods on to the objects that control them.
type Follower struct {
	// Owner is the key of the object that controls a pod, or "".
	Owner func(pod *v1.Pod) string
	// Selecting are the keys of the objects that select a pod which nobody controls.
	Selecting func(pod *v1.Pod) []string
	Expected  *Expectations
	// Add has a key synced.
	Add func(key string)
}

// PodChanged is for OnChange.
func (f Follower) PodChanged(old, pod *v1.Pod) {
	if old != nil && pod != nil && old.UID != pod.UID {
		// The cache missed the end of one pod and the creation of the next of that name.
		f.PodChanged(old, nil)
		old = nil
	}
	for _, p := range []*v1.Pod{old, pod} {
		if p == nil {
			continue
		}
		key := f.Owner(p)
		if key == "" {
			continue
		}
		if old == nil {
			f.Expected.Created(key, p.UID)
		}
		if pod == nil || pod.DeletionTimestamp != nil {
			f.Expected.Deleted(key, p.UID)
		}
		f.Add(key)
	}
	if pod != nil && metav1.GetControllerOfNoCopy(pod) == nil && pod.DeletionTimestamp == nil && len(pod.Labels) > 0 {
		for _, key := range f.Selecting(pod) {
			f.Add(key)
		}
	}
}
