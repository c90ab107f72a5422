// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// mailbox holds what is to be done for pods, so that it does not hold up
// decisions: of a pod only the latest waits, beside what must not be left out.
type mailbox[T any] struct {
	mu      sync.Mutex
	waiting map[types.UID][]letter[T]
	order   []types.UID
	wake    chan struct{} // holds a token when some wait
}

type letter[T any] struct {
	of   T
	must bool
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{waiting: map[types.UID][]letter[T]{}, wake: make(chan struct{}, 1)}
}

// put adds what is to be done for a pod. It takes the place of what waits last
// for it, unless that must be done.
func (m *mailbox[T]) put(uid types.UID, of T, must bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.waiting[uid]
	if len(w) == 0 {
		m.order = append(m.order, uid)
	}
	if last := len(w) - 1; last >= 0 && !w[last].must {
		w = w[:last]
	}
	m.waiting[uid] = append(w, letter[T]{of, must})
	m.signal()
}

func (m *mailbox[T]) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take waits for something to do, and takes at most limit of it, of each pod the
// first that waits. It returns nothing when ctx is done.
func (m *mailbox[T]) take(ctx context.Context, limit int) []T {
	for {
		if out := m.poll(limit); len(out) > 0 {
			return out
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
	}
}

func (m *mailbox[T]) poll(limit int) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(limit, len(m.order))
	var out []T
	var again []types.UID
	for _, uid := range m.order[:n] {
		w := m.waiting[uid]
		out = append(out, w[0].of)
		if len(w) == 1 {
			delete(m.waiting, uid)
			continue
		}
		m.waiting[uid] = w[1:]
		again = append(again, uid)
	}
	if m.order = append(m.order[n:], again...); len(m.order) > 0 {
		m.signal() // another may help
	}
	return out
}
