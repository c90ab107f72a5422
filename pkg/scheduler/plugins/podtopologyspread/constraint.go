// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtopologyspread

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"keelson.dev/scheduling"
)

// constraint is a parsed topologySpreadConstraint.
type constraint struct {
	maxSkew     int
	minDomains  int
	key         string
	selector    labels.Selector
	honorNodes  bool // nodes that do not match the pod's node affinity do not count
	honorTaints bool // nodes with taints that the pod does not tolerate do not count
}

// compile returns the parsed constraints whose whenUnsatisfiable is action.
func compile(pod *v1.Pod, constraints []v1.TopologySpreadConstraint,
	action v1.UnsatisfiableConstraintAction) []constraint {
	var out []constraint
	for i := range constraints {
		c := &constraints[i]
		if c.WhenUnsatisfiable != action {
			continue
		}
		k := constraint{
			maxSkew: int(c.MaxSkew), minDomains: 1, key: c.TopologyKey, selector: selectorOf(pod, c),
			honorNodes:  c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor,
			honorTaints: c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor,
		}
		if c.MinDomains != nil {
			k.minDomains = int(*c.MinDomains)
		}
		out = append(out, k)
	}
	return out
}

// selectorOf returns the constraint's selector, with the pod's own values of matchLabelKeys added.
// The API server may already have added them.
func selectorOf(pod *v1.Pod, c *v1.TopologySpreadConstraint) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return labels.Nothing()
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			if req, err := labels.NewRequirement(key, selection.In, []string{value}); err == nil {
				sel = sel.Add(*req)
			}
		}
	}
	return sel
}

// inclusion determines which nodes count for a constraint of a pod.
type inclusion struct {
	affinity    nodeaffinity.RequiredNodeAffinity
	anywhere    bool // the pod has no node selector and no required affinity
	tolerations []v1.Toleration
}

func newInclusion(pod *v1.Pod) inclusion {
	a := pod.Spec.Affinity
	return inclusion{
		affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations,
		anywhere: len(pod.Spec.NodeSelector) == 0 &&
			(a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil),
	}
}

func (in inclusion) counts(c *constraint, n *scheduling.Node) bool {
	if c.honorNodes && !in.anywhere {
		if ok, _ := in.affinity.Match(n.Node); !ok {
			return false
		}
	}
	if c.honorTaints {
		_, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, in.tolerations,
			func(t *v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }, false)
		return !untolerated
	}
	return true
}

// hasAllKeys reports whether a node has the topology key of each constraint.
func hasAllKeys(n *scheduling.Node, constraints []constraint) bool {
	for i := range constraints {
		if _, ok := n.Labels[constraints[i].key]; !ok {
			return false
		}
	}
	return true
}
