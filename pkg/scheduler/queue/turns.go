// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

// turns gives items numbers by which a queue sort can take the owners of pods in
// turn: the n-th pod of an owner waits for the n-th round. Owners are namespaces.
type turns map[int32]*rounds

// rounds are those of one priority.
type rounds struct {
	now  int64            // round of the item taken last
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
			clear(t) // a new beginning for all: fair enough, and bounded
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

// Bounds of what turns remember.
const (
	maxRounds = 1 << 10
	maxOwners = 1 << 16
)
