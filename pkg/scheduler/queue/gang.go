// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// gangs has the queued items of each gang (a set of pods that are placed together), by gang key.
type gangs map[string]map[*Item]struct{}

func (g gangs) add(item *Item) {
	if item.gang == "" {
		return
	}
	if g[item.gang] == nil {
		g[item.gang] = map[*Item]struct{}{}
	}
	g[item.gang][item] = struct{}{}
}

func (g gangs) remove(item *Item) {
	delete(g[item.gang], item)
	if len(g[item.gang]) == 0 {
		delete(g, item.gang)
	}
}

// join adds an item to the items of its pod's gang.
func (q *Queue) join(item *Item) {
	gang := q.cfg.Gang(item.latest)
	if gang == item.gang {
		return
	}
	q.gangs.remove(item)
	item.gang = gang
	q.gangs.add(item)
}

// Gang is called after Pop has returned an item of a gang. If the queue has at least size items of
// the gang, including item, Gang takes them all out of the queue and returns them, in the order in
// which Pop would. Items that are gated, held, in flight or being deleted do not count.
func (q *Queue) Gang(item *Item, size int) (all []*Item, complete bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = []*Item{item}
	if len(q.gangs[item.gang]) < size {
		return all, false
	}
	for other := range q.gangs[item.gang] {
		if other != item && other.place != inFlight && other.place != gated && !other.held &&
			other.latest.DeletionTimestamp == nil {
			all = append(all, other)
		}
	}
	if len(all) < size {
		return all[:1], false
	}
	for _, other := range all[1:] {
		q.remove(other)
		q.take(other)
	}
	slices.SortFunc(all, func(a, b *Item) int {
		switch {
		case q.active.less(a, b):
			return -1
		case q.active.less(b, a):
			return 1
		}
		return 0
	})
	return all, true
}

// Wake lets the waiting pods of a gang try again. The caller calls it when the PodGroup of the gang was
// created or has changed.
func (q *Queue) Wake(gang string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for item := range q.gangs[gang] {
		switch {
		case item.place == inFlight:
			item.changed = true
		case item.held:
			item.wanted = podGroupChanged
		case item.place == unschedulable:
			q.retry(item, podGroupChanged)
		}
	}
}
