// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
)

const (
	// upFactor and upLeast limit scaling up if the autoscaler has no behavior field: to twice the
	// number of pods, or to 4 if that is more.
	upFactor, upLeast = 2, 4
)

// at is a number of pods, with the time at which this number was proposed, added or removed.
type at struct {
	n    int32
	when time.Time
}

// history contains the recent proposals and changes of one autoscaler. It is kept only in memory.
type history struct {
	// downWindow is the stabilization window for scaling down if the autoscaler's spec sets none.
	downWindow               time.Duration
	proposed, added, removed []at
}

// forget drops entries that are older than the stabilization windows and the periods of the
// policies.
func (h *history) forget(b *autoscalingv2.HorizontalPodAutoscalerBehavior, now time.Time) {
	proposed, added, removed := h.downWindow, time.Duration(0), time.Duration(0)
	if b != nil {
		proposed = max(window(b.ScaleUp, 0), window(b.ScaleDown, h.downWindow))
		added = max(longest(b.ScaleUp), longest(b.ScaleDown))
		removed = added
	}
	drop := func(list []at, age time.Duration) []at {
		return slices.DeleteFunc(list, func(a at) bool { return now.Sub(a.when) > age })
	}
	h.proposed, h.added, h.removed = drop(h.proposed, proposed), drop(h.added, added), drop(h.removed, removed)
}

func window(r *autoscalingv2.HPAScalingRules, standard time.Duration) time.Duration {
	if r == nil || r.StabilizationWindowSeconds == nil {
		return standard
	}
	return time.Duration(*r.StabilizationWindowSeconds) * time.Second
}

func longest(r *autoscalingv2.HPAScalingRules) time.Duration {
	out := int32(0)
	if r != nil {
		for _, p := range r.Policies {
			out = max(out, p.PeriodSeconds)
		}
	}
	return time.Duration(out) * time.Second
}

// recordChange records that the number of pods was changed now.
func (h *history) recordChange(from, to int32, now time.Time) {
	if to > from {
		h.added = append(h.added, at{to - from, now})
	} else {
		h.removed = append(h.removed, at{from - to, now})
	}
}

// verdict is the number of pods after a limit was applied, with the reason and message for a
// condition in the autoscaler's status.
type verdict struct {
	n               int32
	reason, message string
}

// stabilize records the proposal and returns a number that is limited by the recent proposals. When
// scaling up, it is at most the lowest proposal within the stabilization window. When scaling down,
// it is at least the highest one.
func (h *history) stabilize(b *autoscalingv2.HorizontalPodAutoscalerBehavior, current, proposal int32,
	now time.Time) verdict {
	up, down := time.Duration(0), h.downWindow
	if b != nil {
		up, down = window(b.ScaleUp, 0), window(b.ScaleDown, h.downWindow)
	}
	lowest, highest := proposal, proposal
	for _, p := range h.proposed {
		if b != nil && now.Sub(p.when) < up {
			lowest = min(lowest, p.n)
		}
		if now.Sub(p.when) < down {
			highest = max(highest, p.n)
		}
	}
	h.proposed = append(h.proposed, at{proposal, now})
	n := highest
	if b != nil {
		n = min(max(current, lowest), highest)
	}
	switch {
	case n == proposal:
		return verdict{n, "ReadyForNewScale", "recommended size matches current size"}
	case b != nil && proposal >= current:
		return verdict{n, "ScaleUpStabilized",
			"recent recommendations were lower than current one, applying the lowest recent recommendation"}
	}
	return verdict{n, "ScaleDownStabilized",
		"recent recommendations were higher than current one, applying the highest recent recommendation"}
}

// limit restricts a proposal to the range from the minimum to the maximum number of replicas, and
// to the allowed rate of change.
func (h *history) limit(hpa *autoscalingv2.HorizontalPodAutoscaler, least, current, proposal int32,
	now time.Time) verdict {
	most := hpa.Spec.MaxReplicas
	fast := verdict{reason: "ScaleUpLimit",
		message: "the desired replica count is increasing faster than the maximum scale rate"}
	slow := verdict{reason: "ScaleDownLimit",
		message: "the desired replica count is decreasing faster than the maximum scale rate"}
	many := verdict{most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"}
	few := verdict{least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"}
	fine := verdict{proposal, "DesiredWithinRange", "the desired count is within the acceptable range"}
	b := hpa.Spec.Behavior
	upper, lower := many, few
	if b == nil {
		if fast.n = int32(min(max(upFactor*int64(current), upLeast), math.MaxInt32)); fast.n < most {
			upper = fast
		}
	} else {
		if fast.n = max(h.bound(b.ScaleUp, current, 1, now), current); fast.n < most {
			upper = fast
		}
		if slow.n = min(h.bound(b.ScaleDown, current, -1, now), current); slow.n > least {
			lower = slow
		}
	}
	switch {
	case proposal < lower.n && (b == nil || proposal < current):
		return lower
	case proposal > upper.n && (b == nil || proposal > current):
		return upper
	}
	return fine
}

// bound returns to how many pods the scaling policies allow to scale up (sign 1) or down (sign -1)
// now. Each policy counts from the number of pods at the beginning of its period.
func (h *history) bound(r *autoscalingv2.HPAScalingRules, current int32, sign int64, now time.Time) int32 {
	if r == nil {
		return int32(min(max(sign*math.MaxInt32, 0), math.MaxInt32))
	}
	choice := ptr.Deref(r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if choice == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var bounds []int64
	for _, p := range r.Policies {
		period := time.Duration(p.PeriodSeconds) * time.Second
		before := int64(current) - sum(h.added, period, now) + sum(h.removed, period, now)
		if p.Type == autoscalingv2.PodsScalingPolicy {
			bounds = append(bounds, before+sign*int64(p.Value))
			continue
		}
		part := float64(before) * (1 + float64(sign)*float64(p.Value)/100)
		if sign > 0 {
			part = math.Ceil(part) // round up, because otherwise a small target would never grow
		}
		bounds = append(bounds, int64(part))
	}
	if len(bounds) == 0 {
		return current
	}
	out := slices.Max(bounds)
	if (choice == autoscalingv2.MinChangePolicySelect) == (sign > 0) {
		out = slices.Min(bounds)
	}
	return int32(min(max(out, 0), math.MaxInt32))
}

// sum returns the sum of the entries in list that are not older than period.
func sum(list []at, period time.Duration, now time.Time) (out int64) {
	for _, a := range list {
		if now.Sub(a.when) < period {
			out += int64(a.n)
		}
	}
	return out
}
