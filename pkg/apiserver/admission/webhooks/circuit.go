// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"slices"
	"sync"
	"time"

	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
)

const (
	// A webhook is failing after openFailures failures in a row that span at least openAfter. The
	// span keeps a few concurrent failures during a restart of its server from counting.
	openFailures = 3
	openAfter    = 2 * time.Second
	// A failing webhook that gets no other calls is probed after probeFirst, and then at intervals
	// that double up to probeLast.
	probeFirst = time.Second
	probeLast  = 15 * time.Second
	// kept is the number of latencies that are remembered.
	kept = 128
)

// circuit is the state of one endpoint. It does no I/O and has no clock.
type circuit struct {
	mu sync.Mutex
	// row is the number of consecutive failures. The first of them was at since.
	row   int
	since time.Time
	open  bool
	// probe is when the next probe is due, and wait is the interval after it.
	probe   time.Time
	wait    time.Duration
	probing bool

	calls, failures, passed uint64
	reason                  string // reason of the last failure
	failedAt, answeredAt    time.Time
	latencies               [kept]time.Duration
}

// answered records an answer. It closes the circuit, and reports whether it was open.
func (c *circuit) answered(now time.Time, took time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.open
	c.latencies[c.calls%kept] = took
	c.calls++
	c.row, c.open, c.probing, c.answeredAt = 0, false, false, now
	return was
}

// failed records a failure, and reports whether it opened the circuit.
func (c *circuit) failed(now time.Time, took time.Duration, reason string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row == 0 {
		c.since = now
	}
	c.latencies[c.calls%kept] = took
	c.calls++
	c.failures++
	c.row++
	c.reason, c.failedAt, c.probing = reason, now, false
	if c.open {
		c.probe, c.wait = now.Add(c.wait), min(2*c.wait, probeLast)
		return false
	}
	// A failure counts from the start of its call.
	if c.row < openFailures || now.Sub(c.since)+took < openAfter {
		return false
	}
	c.open, c.probe, c.wait = true, now.Add(probeFirst), 2*probeFirst
	return true
}

// abandoned records a call with an unknown outcome.
func (c *circuit) abandoned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// isOpen reports whether the webhook is failing.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// pass records that a request was admitted without the webhook, and reports whether this request is
// the probe. There is at most one probe at a time.
func (c *circuit) pass(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed++
	if !c.open || c.probing || now.Before(c.probe) {
		return false
	}
	c.probing = true
	return true
}

// health returns a copy of the state.
func (c *circuit) health() webhookhealth.Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := webhookhealth.Health{
		State: webhookhealth.Closed, Calls: c.calls, Failures: c.failures, ConsecutiveFailures: c.row, PassedOver: c.passed,
		LastAnswer: moment(c.answeredAt), LastFailure: moment(c.failedAt), LastReason: c.reason,
	}
	if c.row > 0 {
		h.Since = moment(c.since)
	}
	switch {
	case c.open && c.probing:
		h.State = webhookhealth.HalfOpen
	case c.open:
		h.State = webhookhealth.Open
	}
	if n := int(min(c.calls, kept)); n > 0 {
		last := slices.Sorted(slices.Values(c.latencies[:n]))
		h.Median, h.Slow = last[n/2].Seconds(), last[n*99/100].Seconds()
	}
	return h
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
