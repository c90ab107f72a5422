// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

// Hold keeps an unschedulable pod from being tried, whatever events happen, until Release is
// called. The scheduler calls it for a pod whose victims are not evicted yet.
func (q *Queue) Hold(item *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items[item.Pod.UID] == item && item.place == unschedulable {
		item.held, item.wanted = true, 0
	}
}

// Release ends Hold. If an event that may let the pod fit happened meanwhile, the pod is tried
// again.
func (q *Queue) Release(item *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !item.held {
		return
	}
	item.held = false
	if item.wanted != 0 && item.place == unschedulable {
		q.retry(item, item.wanted)
	}
}
