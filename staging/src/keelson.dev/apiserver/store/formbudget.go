// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"weak"
)

// objectCost is about how many times more memory a decoded object takes than its stored bytes.
const objectCost = 4

// formBudget bounds the memory of the encodings and decoded objects that records keep. It queues
// them in the order in which records began to keep them. When their total size exceeds max, the
// records at the head of the queue drop all of theirs. Reads do not change the order, so they need
// no lock on the queue. The oldest entries are the best to drop, because watchers use an encoding
// soon after the write.
//
// Invariant: spent is the sum of the sizes in the queue, and at most max after each spend. The
// queue refers to records weakly: when a record is garbage, its encodings are too.
type formBudget struct {
	max int64 // bytes

	mu    sync.Mutex
	spent int64
	queue []keptForm // queue[head:] are in the queue
	head  int
}

// keptForm is an entry of the queue: a record, and the size in bytes of an encoding or decoded object
// that it keeps.
type keptForm struct {
	record weak.Pointer[Record]
	bytes  int64
}

// newFormBudget returns a budget of limit bytes for decoded objects and encodings that records
// keep.
func newFormBudget(limit int64) *formBudget { return &formBudget{max: limit} }

// spend counts n more bytes for r, and makes the oldest records drop what they keep if the budget
// is exceeded. A nil budget is unlimited. The caller must not hold the lock of a record, except
// r.encoding.
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

// note appends an entry to the queue. It removes entries from the head until the budget is met, and
// returns their records, which have to drop their encodings and decoded objects.
func (b *formBudget) note(r *Record, n int64) []*Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, keptForm{record: weak.Make(r), bytes: n})
	b.spent += n
	var out []*Record
	for b.spent > b.max && b.head < len(b.queue) {
		e := b.queue[b.head]
		b.queue[b.head] = keptForm{}
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
