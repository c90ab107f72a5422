// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restart decides whether and when a container that has ended is restarted.
package restart

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Default back-off: the first restart is immediate, and the next one after 10 s. The delay doubles
// up to 5 min, and is reset after twice the maximum without a restart.
const (
	DefaultBase = 10 * time.Second
	DefaultMax  = 5 * time.Minute
)

// ShouldStart reports whether a container of the pod that ended with the exit code must be started
// again. For init containers other than sidecars only failures count.
func ShouldStart(pod *v1.Pod, c *v1.Container, exitCode int32, init bool) bool {
	if action := rule(c, exitCode); action == v1.ContainerRestartRuleActionRestart ||
		action == v1.ContainerRestartRuleActionRestartAllContainers {
		return true
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
		if init && policy == v1.RestartPolicyAlways {
			return true // a sidecar is always restarted
		}
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return !init || exitCode != 0
	}
}

// rule returns the action of the first of the container's rules that matches the exit code, or "".
func rule(c *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes != nil && matches(r.ExitCodes, exitCode) {
			return r.Action
		}
	}
	return ""
}

func matches(e *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	in := slices.Contains(e.Values, code)
	return in == (e.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// Backoff is the restart delay of a container or sandbox. The zero value has no delay.
type Backoff struct {
	Base, Max time.Duration
	delay     time.Duration
	last      time.Time
	// odd is an end time that cannot be right, and sight is when it was first seen.
	odd, sight time.Time
}

// Delay returns the present delay, or 0.
func (b *Backoff) Delay() time.Duration { return b.delay }

// Until returns when a container that ended at ended may start again; that time may have passed. If
// the end is in the future, because the clock was set back, or before the start, the time at which
// this end was first seen is used instead. So a restart does not wait until the clock has caught
// up, and a container is not restarted without a delay.
func (b *Backoff) Until(ended, now time.Time) time.Time {
	if ended = b.plausible(ended, now); b.delay == 0 || b.expired(ended) {
		return ended
	}
	return ended.Add(b.delay)
}

// Next records a start at now after an end at ended, and increases the next delay.
func (b *Backoff) Next(ended, now time.Time) {
	if ended = b.plausible(ended, now); b.delay == 0 || b.expired(ended) {
		b.delay = b.base()
	} else {
		b.delay = min(2*b.delay, b.max())
	}
	b.last = now
}

// plausible returns the end time, corrected with what was known when it was first seen.
func (b *Backoff) plausible(ended, now time.Time) time.Time {
	if (ended.After(now) || ended.Before(b.last)) && !ended.Equal(b.odd) {
		b.odd, b.sight = ended, now
	}
	if !b.odd.IsZero() && ended.Equal(b.odd) {
		return b.sight
	}
	return ended
}

func (b *Backoff) expired(ended time.Time) bool { return ended.Sub(b.last) > 2*b.max() }

func (b *Backoff) base() time.Duration {
	if b.Base == 0 {
		return min(DefaultBase, b.max())
	}
	return b.Base
}

func (b *Backoff) max() time.Duration {
	if b.Max == 0 {
		return DefaultMax
	}
	return b.Max
}
