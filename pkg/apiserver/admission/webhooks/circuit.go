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
	// A webhook counts as failing after at least openFailures consecutive failures that span at least
	// openAfter. The minimum span is for restarts of the webhook's server, during which several
	// concurrent calls may fail.
	openFailures = 3
	openAfter    = 2 * time.Second
	// Reviews are sent to a failing webhook as probes, to find out whether it answers again. The
	// first probe is probeFirst after the webhook began to count as failing; then the intervals
	// double up to probeLast.
	probeFirst = time.Second
	probeLast  = 15 * time.Second
	// kept is the number of latencies that are kept for statistics.
	kept = 128
)

// circuit is the state of a webhook's endpoint: open while the webhook is failing, and closed
// otherwise. Callers pass times to its methods, so it needs no clock.
type circuit struct {
	mu sync.Mutex
	// The field row is the number of consecutive failures. The field since is the time of the first
	// one.
	row   int
	since time.Time
	open  bool
	// probe is the time from which the next probe of a failing webhook may start (see probeFirst),
	// and wait is the interval after a failed probe.
	probe   time.Time
	wait    time.Duration
	probing bool

	calls, failures, passed uint64
	reason                  string // reason of the last failure
	failedAt, answeredAt    time.Time
	latencies               [kept]time.Duration
}

// answered records an answer of the webhook, which closes the circuit. It reports whether the
// circuit was open.
func (c *circuit) answered(now time.Time, took time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.open
	c.latencies[c.calls%kept] = took
	c.calls++
	c.row, c.open, c.probing, c.answeredAt = 0, false, false, now
	return was
}

// failed records a failed call of the webhook. It reports whether this opened the circuit.
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
	// The span of the failures includes the duration of this call.
	if c.row < openFailures || now.Sub(c.since)+took < openAfter {
		return false
	}
	c.open, c.probe, c.wait = true, now.Add(probeFirst), 2*probeFirst
	return true
}

// abandoned records that a call of the webhook ended without an outcome, for example because the
// client of the API request disconnected.
func (c *circuit) abandoned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// isOpen reports whether the circuit is open: the webhook is failing.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// pass records that a request was admitted without the webhook. It returns true if the caller has
// to start a probe, that is, send a review to find out whether the webhook answers again. There is
// at most one probe at a time.
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

// health returns the state as the document of /debug/webhooks shows it.
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
