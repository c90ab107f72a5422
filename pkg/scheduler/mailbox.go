// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// mailbox queues work for pods, so that the scheduling goroutine does not wait for that work. A
// later entry for a pod replaces the pod's queued entry, unless that entry is marked with must.
type mailbox[T any] struct {
	mu      sync.Mutex
	waiting map[types.UID][]letter[T]
	order   []types.UID
	wake    chan struct{} // has an element if there is work
}

type letter[T any] struct {
	of   T
	must bool
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{waiting: map[types.UID][]letter[T]{}, wake: make(chan struct{}, 1)}
}

// put adds an entry for a pod. It replaces the pod's last queued entry, unless that entry was added
// with must.
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

// take waits for work and returns at most limit entries, at most one for each pod. It returns
// nothing once ctx ends.
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
		m.signal() // wakes another worker
	}
	return out
}
