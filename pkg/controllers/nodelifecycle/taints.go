// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isEvicting reports whether a node has a taint with the effect NoExecute that this controller
// manages.
func isEvicting(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints,
		func(t v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute && isManaged(t) })
}

// isManaged reports whether this controller adds and removes taints with the key and effect of t.
func isManaged(t v1.Taint) bool {
	switch t.Key {
	case v1.TaintNodeNotReady, v1.TaintNodeUnreachable:
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	case v1.TaintNodeMemoryPressure, v1.TaintNodeDiskPressure, v1.TaintNodePIDPressure,
		v1.TaintNodeNetworkUnavailable, v1.TaintNodeUnschedulable:
		return t.Effect == v1.TaintEffectNoSchedule
	}
	return false
}

// wantedTaints returns the taints that a node must have because of its conditions. If evict is
// true, these include the taints that evict pods.
func wantedTaints(n *v1.Node, evict bool) []v1.Taint {
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

// mergeTaints returns the present taints, with those that this controller manages replaced by the
// wanted ones. It reports whether that changes anything. Taints that remain keep their time.
func mergeTaints(have, want []v1.Taint, now time.Time) ([]v1.Taint, bool) {
	var out []v1.Taint
	changed := false
	for _, t := range have {
		if isManaged(t) && !slices.ContainsFunc(want, func(w v1.Taint) bool { return w.MatchTaint(&t) }) {
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
