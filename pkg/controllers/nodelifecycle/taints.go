// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ours tells whether a taint is this controller's to set and to take away.
func ours(t v1.Taint) bool {
	switch t.Key {
	case v1.TaintNodeNotReady, v1.TaintNodeUnreachable:
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	case v1.TaintNodeMemoryPressure, v1.TaintNodeDiskPressure, v1.TaintNodePIDPressure, v1.TaintNodeNetworkUnavailable, v1.TaintNodeUnschedulable:
		return t.Effect == v1.TaintEffectNoSchedule
	}
	return false
}

// wanted are the taints that a node's conditions call for. evict tells whether
// pods may be evicted from it.
func wanted(n *v1.Node, evict bool) []v1.Taint {
	var out []v1.Taint
	add := func(key string, effect v1.TaintEffect) { out = append(out, v1.Taint{Key: key, Effect: effect}) }
	if n.Spec.Unschedulable {
		add(v1.TaintNodeUnschedulable, v1.TaintEffectNoSchedule)
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == v1.NodeReady && c.Status != v1.ConditionTrue:
			key := v1.TaintNodeNotReady
			if c.Status == v1.ConditionUnknown {
				key = v1.TaintNodeUnreachable
			}
			add(key, v1.TaintEffectNoSchedule)
			if evict {
				add(key, v1.TaintEffectNoExecute)
			}
		case c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue:
			add(v1.TaintNodeMemoryPressure, v1.TaintEffectNoSchedule)
		case c.Type == v1.NodeDiskPressure && c.Status == v1.ConditionTrue:
			add(v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule)
		case c.Type == v1.NodePIDPressure && c.Status == v1.ConditionTrue:
			add(v1.TaintNodePIDPressure, v1.TaintEffectNoSchedule)
		case c.Type == v1.NodeNetworkUnavailable && c.Status == v1.ConditionTrue:
			add(v1.TaintNodeNetworkUnavailable, v1.TaintEffectNoSchedule)
		}
	}
	return out
}

// merge puts the wanted taints in the place of those of ours that a node has,
// and tells whether that changes anything. What stays keeps its time.
func merge(have, want []v1.Taint, now time.Time) ([]v1.Taint, bool) {
	var out []v1.Taint
	changed := false
	for _, t := range have {
		if ours(t) && !slices.ContainsFunc(want, func(w v1.Taint) bool { return w.MatchTaint(&t) }) {
			changed = true
			continue
		}
		out = append(out, t)
	}
	for _, w := range want {
		if slices.ContainsFunc(out, func(t v1.Taint) bool { return t.MatchTaint(&w) }) {
			continue
		}
		at := metav1.NewTime(now)
		w.TimeAdded = &at
		out, changed = append(out, w), true
	}
	return out, changed
}

// evictAt tells when a pod has to leave a node with these taints; no time when
// it may stay.
func evictAt(taints []v1.Taint, tolerations []v1.Toleration, now time.Time) (at time.Time, leaves bool) {
	for i := range taints {
		t := &taints[i]
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		begun := now
		if t.TimeAdded != nil {
			begun = t.TimeAdded.Time
		}
		limit, forever := patience(t, tolerations)
		if forever {
			continue
		}
		if end := begun.Add(limit); !leaves || end.Before(at) {
			at, leaves = end, true
		}
	}
	return at, leaves
}

// patience is how long a pod puts up with a taint: the shortest of the times
// its tolerations for it give, none when it does not tolerate it.
func patience(t *v1.Taint, tolerations []v1.Toleration) (limit time.Duration, forever bool) {
	tolerated, limited := false, false
	for i := range tolerations {
		tol := &tolerations[i]
		if !tol.ToleratesTaint(klogger(), t, false) {
			continue
		}
		tolerated = true
		if tol.TolerationSeconds == nil {
			continue
		}
		d := time.Duration(max(*tol.TolerationSeconds, 0)) * time.Second
		if !limited || d < limit {
			limit, limited = d, true
		}
	}
	return limit, tolerated && !limited
}
