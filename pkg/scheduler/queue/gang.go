// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// gangs has the items of each gang.
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

// join adds an item to the gang of its pod.
func (q *Queue) join(item *Item) {
	gang := q.cfg.Gang(item.latest)
	if gang == item.gang {
		return
	}
	q.gangs.remove(item)
	item.gang = gang
	q.gangs.add(item)
}

// Gang takes the other items of a gang out of the queue, after Pop has returned one, if the gang
// then has at least size items in all. They are in the order in which Pop would return them. Items
// that are gated, held, in flight or being deleted do not count.
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
