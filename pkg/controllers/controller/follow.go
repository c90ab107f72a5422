// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Follower adds the keys of the objects that own or select a changed pod to a queue.
type Follower struct {
	// Owner returns the key of the object that controls a pod, or "" if no object controls it.
	Owner func(pod *v1.Pod) string
	// Selecting returns the keys of the objects whose selectors match a pod that has no controller.
	Selecting func(pod *v1.Pod) []string
	Expected  *Expectations
	// Add adds a key to the queue.
	Add func(key string)
}

// PodChanged handles a change of a pod. It is a handler for OnChange: old is nil if the pod was
// added, pod is nil if it was deleted.
func (f Follower) PodChanged(old, pod *v1.Pod) {
	if old != nil && pod != nil && old.UID != pod.UID {
		// The pod was deleted and another one of the same name was created, but the informer
		// reports only one update. Handle the deletion first.
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
