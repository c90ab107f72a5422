// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

// turns numbers items so that a queue sort plugin can let the owners of pods take turns: the n-th
// pod of an owner is in round n. An owner is a namespace.
type turns map[int32]*rounds

// rounds has the rounds of one priority.
type rounds struct {
	now  int64            // round of the last item that was tried
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
			clear(t) // all owners begin with the same round again, which is fair and limits memory
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

// Limits of what turns stores.
const (
	maxRounds = 1 << 10
	maxOwners = 1 << 16
)
