// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

// Signal wakes one goroutine. It is either raised or not: raising it several times wakes the
// goroutine once.
type Signal chan struct{}

// NewSignal returns a signal that is not raised.
func NewSignal() Signal { return make(Signal, 1) }

// Raise raises the signal, which wakes the goroutine that receives from it. It does not block.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default: // the signal is already raised
	}
}

// Changes collects changes in a batch, until the owner takes the batch. A batch should have one
// entry per object, however often the object changes, so that its size is limited by the number of
// objects. It is safe for concurrent use.
type Changes[B any] struct {
	// Signal is raised after each change.
	Signal
	empty func() B

	mu    sync.Mutex
	batch B
}

// NewChanges returns a Changes without changes. empty returns a new batch.
func NewChanges[B any](empty func() B) *Changes[B] {
	return &Changes[B]{Signal: NewSignal(), empty: empty, batch: empty()}
}

// Note calls change, which adds a change to the batch, and raises Signal.
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

// Loop calls a function at the start, after changes, periodically, and again after a failure. Each
// call is a round.
type Loop struct {
	Clock clock.Clock
	// Wake is raised when something has changed.
	Wake Signal
	// Settle, if not nil, returns how long to wait after a change before the next round, so that one
	// round handles many changes in this time. took is the duration of the last round.
	Settle func(took time.Duration) time.Duration
	// Period, if not 0, is the interval of rounds without a change. Check, if not nil, is called
	// before each of these rounds.
	Period time.Duration
	Check  func()
	// FirstRetry is the delay after a failed round. It doubles with each further failure, up to
	// LastRetry.
	FirstRetry, LastRetry time.Duration
}

// Run calls round until ctx is done, one call at a time. round returns whether it succeeded.
func (l Loop) Run(ctx context.Context, round func(ctx context.Context) bool) {
	var period <-chan time.Time
	if l.Period > 0 {
		t := l.Clock.NewTicker(l.Period)
		defer t.Stop()
		period = t.C()
	}
	retry := l.Clock.NewTimer(0) // fires at once, for the first round
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

// settle waits for the time that Settle returns, or until ctx is done. Then it clears Wake, because
// the next round handles the changes during this time.
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
