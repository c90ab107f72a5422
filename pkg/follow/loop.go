// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

// Signal wakes one goroutine. It stores that it was raised, but not how often.
type Signal chan struct{}

// NewSignal returns a signal that is not raised.
func NewSignal() Signal { return make(Signal, 1) }

// Raise wakes the receiver. It does not block.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default: // the signal is already pending
	}
}

// Changes collects changes in a batch until its owner takes them. A batch should have one entry for
// each object, however often the object changes, so that it never has more entries than there are
// objects. It is safe for concurrent use.
type Changes[B any] struct {
	// Each change raises Signal.
	Signal
	empty func() B

	mu    sync.Mutex
	batch B
}

// NewChanges returns a collection without changes. Each batch starts as a result of empty.
func NewChanges[B any](empty func() B) *Changes[B] {
	return &Changes[B]{Signal: NewSignal(), empty: empty, batch: empty()}
}

// Note calls change to add to the batch, and wakes the owner.
func (c *Changes[B]) Note(change func(*B)) {
	c.mu.Lock()
	change(&c.batch)
	c.mu.Unlock()
	c.Raise()
}

// Take returns the batch and starts a new one.
func (c *Changes[B]) Take() B {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.batch
	c.batch = c.empty()
	return out
}

// Loop calls a function at the start, when something has changed, and again after it failed.
type Loop struct {
	Clock clock.Clock
	// Wake signals that something has changed.
	Wake Signal
	// Settle, if not nil, returns how long to wait after a change before the next round, so that
	// changes that come together need one round only. Its argument is how long the last round took.
	Settle func(took time.Duration) time.Duration
	// Period, if not 0, is how often Check and then a round run without a change. Check may be nil.
	Period time.Duration
	Check  func()
	// FirstRetry and LastRetry bound the delay after a failed round. It doubles with each failure.
	FirstRetry, LastRetry time.Duration
}

// Run calls round, never twice at the same time, until ctx ends. A round returns whether it
// succeeded.
func (l Loop) Run(ctx context.Context, round func(ctx context.Context) bool) {
	var period <-chan time.Time
	if l.Period > 0 {
		t := l.Clock.NewTicker(l.Period)
		defer t.Stop()
		period = t.C()
	}
	retry := l.Clock.NewTimer(0) // expires at once, for the first round
	defer retry.Stop()
	delay := l.FirstRetry
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.Wake:
			l.settle(ctx, took)
		case <-retry.C():
		case <-period:
			if l.Check != nil {
				l.Check()
			}
		}
		if ctx.Err() != nil {
			return
		}
		began := l.Clock.Now()
		ok := round(ctx)
		took = l.Clock.Since(began)
		if ok {
			delay = l.FirstRetry
			continue
		}
		retry.Reset(delay)
		delay = min(2*delay, l.LastRetry)
	}
}

// settle waits for the time that Settle returns, or for the end of ctx. Changes that happen
// meanwhile need no further round.
func (l Loop) settle(ctx context.Context, took time.Duration) {
	if l.Settle == nil {
		return
	}
	timer := l.Clock.NewTimer(l.Settle(took))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
	select {
	case <-l.Wake:
	default:
	}
}
