// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"weak"
)

// objectCost is about how much more memory a decoded object takes than its bytes.
const objectCost = 4

// formBudget bounds what records remember beside their bytes. It is a queue in
// the order in which things were remembered; when their sum is too large, the
// records at its head forget. That is simple, needs no work at a read, and fits
// how forms are used: by all watchers within moments of the write, and by lists
// that come again and again. References are weak: a record that nobody holds
// any more takes its forms with it.
type formBudget struct {
	max int64

	mu    sync.Mutex
	spent int64
	queue []remembered
	head  int
}

type remembered struct {
	record weak.Pointer[Record]
	bytes  int64
}

func newFormBudget(max int64) *formBudget { return &formBudget{max: max} }

// spend notes that r remembers n bytes more, and has others forget as much as
// is over the budget. The caller holds no record's lock but r.encoding.
func (b *formBudget) spend(r *Record, n int) {
	if b == nil {
		return
	}
	for _, old := range b.note(r, int64(n)) {
		if old != r {
			old.forget()
		}
	}
}

// note appends to the queue and takes from its head who has to forget.
func (b *formBudget) note(r *Record, n int64) []*Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, remembered{record: weak.Make(r), bytes: n})
	b.spent += n
	var out []*Record
	for b.spent > b.max && b.head < len(b.queue) {
		e := b.queue[b.head]
		b.queue[b.head] = remembered{}
		b.head++
		b.spent -= e.bytes
		if old := e.record.Value(); old != nil {
			out = append(out, old)
		}
	}
	if b.head > len(b.queue)/2 {
		n := copy(b.queue, b.queue[b.head:])
		clear(b.queue[n:])
		b.queue, b.head = b.queue[:n], 0
	}
	return out
}
