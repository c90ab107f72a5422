// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

// turns gives each item a round number, so that a queue sort plugin can let the owners of pods take
// turns: the n-th pod of an owner is in round n. The owner of a pod is its namespace. The map's key
// is the priority of the pods.
type turns map[int32]*rounds

// rounds has the rounds of the pods of one priority.
type rounds struct {
	now  int64            // round of the last item that Pop returned
	last map[string]int64 // round of each namespace's last item
}

func (t turns) give(item *Item) {
	priority := int32(0)
	if p := item.latest.Spec.Priority; p != nil {
		priority = *p
	}
	r := t[priority]
	if r == nil {
		if len(t) >= maxRounds {
			clear(t) // all namespaces start in the same round again, which is fair and limits memory
		}
		r = &rounds{last: map[string]int64{}}
		t[priority] = r
	}
	if len(r.last) >= maxOwners {
		clear(r.last)
	}
	item.turn = max(r.last[item.latest.Namespace]+1, r.now)
	r.last[item.latest.Namespace] = item.turn
}

func (t turns) taken(item *Item) {
	priority := int32(0)
	if p := item.latest.Spec.Priority; p != nil {
		priority = *p
	}
	if r := t[priority]; r != nil {
		r.now = max(r.now, item.turn)
	}
}

// Limits of the maps in turns: the number of priorities, and the number of namespaces per priority.
const (
	maxRounds = 1 << 10
	maxOwners = 1 << 16
)
