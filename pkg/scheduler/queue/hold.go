// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

// Hold keeps an unschedulable pod in the queue until Release, whatever happens. It is called for
// pods whose victims are not evicted yet.
func (q *Queue) Hold(item *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items[item.Pod.UID] == item && item.place == unschedulable {
		item.held, item.wanted = true, 0
	}
}

// Release ends Hold. The pod is tried if an event that can help it has happened.
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
