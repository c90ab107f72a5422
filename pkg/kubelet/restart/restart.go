// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restart decides whether and when the kubelet restarts a container that has ended.
package restart

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The default delays between restarts. The first restart is immediate and the next one waits 10 s.
// The delay doubles up to 5 min. It is reset when a container has run for twice the maximum delay.
const (
	DefaultBase = 10 * time.Second
	DefaultMax  = 5 * time.Minute
)

// ShouldStart reports whether a container of the pod that ended with the exit code must be started
// again. init is true for init containers. Unless a rule says otherwise, an init container that is
// not a sidecar is restarted only after a failure.
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

// rule returns the action of the container's first restart rule that matches the exit code, or "".
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

// Backoff computes the delay between the restarts of a container or sandbox. With the zero value,
// the first restart has no delay.
type Backoff struct {
	Base, Max time.Duration
	delay     time.Duration
	last      time.Time
	// odd is an implausible end time, and sight is when it was first passed to a method.
	odd, sight time.Time
}

// Delay returns the current delay.
func (b *Backoff) Delay() time.Duration { return b.delay }

// Until returns the time at which a container may start again. The argument ended is the time at
// which it ended. The result may be in the past. If the end time is implausible, Until uses the
// time at which it first got this end time instead. An end time is implausible if it is in the
// future, because the clock was set back, or before the latest start. So a restart neither waits
// until the clock has caught up nor happens without a delay.
func (b *Backoff) Until(ended, now time.Time) time.Time {
	if ended = b.plausible(ended, now); b.delay == 0 || b.expired(ended) {
		return ended
	}
	return ended.Add(b.delay)
}

// Next records that a container, which ended at the time ended, starts again now. It increases the
// delay before the next start.
func (b *Backoff) Next(ended, now time.Time) {
	if ended = b.plausible(ended, now); b.delay == 0 || b.expired(ended) {
		b.delay = b.base()
	} else {
		b.delay = min(2*b.delay, b.max())
	}
	b.last = now
}

// plausible returns the time ended. If this time is implausible, it returns the time at which it
// was first called with this value.
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
