// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"maps"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selects reports whether a label selector matches labels. A missing selector matches nothing, and
// an empty selector matches everything.
func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return false
	}
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := labels[e.Key]
		var ok bool
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = has && slices.Contains(e.Values, value)
		case metav1.LabelSelectorOpNotIn:
			ok = !has || !slices.Contains(e.Values, value)
		case metav1.LabelSelectorOpExists:
			ok = has
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return true
}

func requirementMatches(r v1.NodeSelectorRequirement, value string, has bool) bool {
	switch r.Operator {
	case v1.NodeSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case v1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case v1.NodeSelectorOpExists:
		return has
	case v1.NodeSelectorOpDoesNotExist:
		return !has
	}
	have, err1 := strconv.ParseInt(value, 10, 64)
	want, err2 := strconv.ParseInt(r.Values[0], 10, 64)
	if !has || err1 != nil || err2 != nil {
		return false
	}
	return r.Operator == v1.NodeSelectorOpGt && have > want || r.Operator == v1.NodeSelectorOpLt && have < want
}

// termMatches reports whether a node matches all expressions of a term. A term without expressions
// matches no node.
func termMatches(t v1.NodeSelectorTerm, n *v1.Node) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	for _, r := range t.MatchExpressions {
		value, has := n.Labels[r.Key]
		if !requirementMatches(r, value, has) {
			return false
		}
	}
	for _, r := range t.MatchFields {
		if !requirementMatches(r, n.Name, true) {
			return false
		}
	}
	return true
}

// nodeMatches reports whether a node matches the pod's node selector, and at least one term of its
// required node affinity.
func nodeMatches(pod *v1.Pod, n *v1.Node) bool {
	for k, v := range pod.Spec.NodeSelector {
		if got, ok := n.Labels[k]; !ok || got != v {
			return false
		}
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms,
		func(t v1.NodeSelectorTerm) bool { return termMatches(t, n) })
}

// constraint is a topology spread constraint with its default values filled in.
type constraint struct {
	v1.TopologySpreadConstraint
	matches func(labels map[string]string) bool
}

func constraints(pod *v1.Pod, action v1.UnsatisfiableConstraintAction) []constraint {
	var out []constraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != action {
			continue
		}
		keys := map[string]string{}
		for _, k := range c.MatchLabelKeys {
			if v, ok := pod.Labels[k]; ok {
				keys[k] = v
			}
		}
		out = append(out, constraint{c, func(labels map[string]string) bool {
			for k, v := range keys {
				if got, ok := labels[k]; !ok || got != v {
					return false
				}
			}
			return selects(c.LabelSelector, labels)
		}})
	}
	return out
}

// counts returns how many pods on a node the constraint counts.
func (k *constraint) counts(c *cluster, namespace, node string) int {
	count := 0
	for _, p := range c.on(node) {
		if p.Namespace == namespace && p.DeletionTimestamp == nil && k.matches(p.Labels) {
			count++
		}
	}
	return count
}

// included reports whether a node counts for the pod, according to the constraint's inclusion
// policies.
func (k *constraint) included(pod *v1.Pod, n *v1.Node) bool {
	if (k.NodeAffinityPolicy == nil || *k.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor) && !nodeMatches(pod, n) {
		return false
	}
	honorTaints := k.NodeTaintsPolicy != nil && *k.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
	return !honorTaints || untolerated(pod, n, v1.TaintEffectNoSchedule)+untolerated(pod, n, v1.TaintEffectNoExecute) == 0
}

func hasKeys(n *v1.Node, ks []constraint) bool {
	for _, k := range ks {
		if _, ok := n.Labels[k.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

func skewed(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	ks := constraints(pod, v1.DoNotSchedule)
	for _, k := range ks {
		value, ok := n.Labels[k.TopologyKey]
		if !ok {
			return true
		}
		domains := map[string]int{}
		for _, other := range c.nodes {
			if hasKeys(other, ks) && k.included(pod, other) {
				domains[other.Labels[k.TopologyKey]] += k.counts(c, pod.Namespace, other.Name)
			}
		}
		fewest := math.MaxInt
		for _, count := range domains {
			fewest = min(fewest, count)
		}
		need := 1
		if k.MinDomains != nil {
			need = int(*k.MinDomains)
		}
		if len(domains) < need {
			fewest = 0
		}
		self := 0
		if k.matches(pod.Labels) {
			self = 1
		}
		if domains[value]+self-fewest > int(k.MaxSkew) {
			return true
		}
	}
	return false
}

// spreadScores returns the scores of the plugin PodTopologySpread. A pod that has no constraints
// and belongs to a Service is spread over hosts and zones.
func spreadScores(c *cluster, pod *v1.Pod, nodes []*v1.Node) []int64 {
	ks, needAll := constraints(pod, v1.ScheduleAnyway), true
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		merged := map[string]string{}
		for _, s := range c.services {
			if s.Namespace == pod.Namespace && len(s.Spec.Selector) > 0 &&
				selects(&metav1.LabelSelector{MatchLabels: s.Spec.Selector}, pod.Labels) {
				maps.Copy(merged, s.Spec.Selector)
			}
		}
		if len(merged) == 0 {
			return nil
		}
		needAll = false
		matches := func(labels map[string]string) bool {
			return selects(&metav1.LabelSelector{MatchLabels: merged}, labels)
		}
		ks = []constraint{
			{v1.TopologySpreadConstraint{TopologyKey: v1.LabelHostname, MaxSkew: 3}, matches},
			{v1.TopologySpreadConstraint{TopologyKey: v1.LabelTopologyZone, MaxSkew: 5}, matches},
		}
	}
	if len(ks) == 0 {
		return nil
	}
	ignored := func(n *v1.Node) bool { return needAll && !hasKeys(n, ks) }
	raw := make([]int64, len(nodes))
	low, high := int64(math.MaxInt64), int64(0)
	for i, n := range nodes {
		if ignored(n) {
			continue
		}
		sum := 0.0
		for _, k := range ks {
			value, ok := n.Labels[k.TopologyKey]
			if !ok {
				continue
			}
			domains, count := map[string]bool{}, 0
			if k.TopologyKey == v1.LabelHostname {
				for _, other := range nodes {
					if !ignored(other) {
						domains[other.Name] = true
					}
				}
				count = k.counts(c, pod.Namespace, n.Name)
			} else {
				for _, other := range nodes {
					if !ignored(other) {
						domains[other.Labels[k.TopologyKey]] = true
					}
				}
				for _, other := range c.nodes {
					if v, ok := other.Labels[k.TopologyKey]; ok && v == value && !ignored(other) && k.included(pod, other) {
						count += k.counts(c, pod.Namespace, other.Name)
					}
				}
			}
			sum += float64(count)*math.Log(float64(len(domains)+2)) + float64(k.MaxSkew-1)
		}
		raw[i] = int64(math.Round(sum))
		low, high = min(low, raw[i]), max(high, raw[i])
	}
	for i, n := range nodes {
		switch {
		case ignored(n):
			raw[i] = 0
		case high == 0:
			raw[i] = 100
		default:
			raw[i] = 100 * (high + low - raw[i]) / high
		}
	}
	return raw
}

// affinityTerms returns the terms of a pod's affinity and anti-affinity: required (near, apart) and
// preferred (likes, dislikes).
func affinityTerms(pod *v1.Pod) (near, apart []v1.PodAffinityTerm, likes, dislikes []v1.WeightedPodAffinityTerm) {
	a := pod.Spec.Affinity
	if a == nil {
		return
	}
	if a.PodAffinity != nil {
		near, likes = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a.PodAntiAffinity != nil {
		apart, dislikes = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return
}

// means reports whether the affinity term t of a pod (the argument owner) selects another pod.
func (c *cluster) means(owner *v1.Pod, t v1.PodAffinityTerm, other *v1.Pod) bool {
	namespace := slices.Contains(t.Namespaces, other.Namespace)
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		namespace = other.Namespace == owner.Namespace
	}
	if t.NamespaceSelector != nil {
		namespace = namespace || selects(t.NamespaceSelector, c.namespaces[other.Namespace])
	}
	return namespace && selects(t.LabelSelector, other.Labels)
}

func (c *cluster) node(name string) *v1.Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// together reports whether two nodes are in the same domain of a topology key.
func together(a, b *v1.Node, key string) bool {
	if a == nil || b == nil {
		return false
	}
	va, oka := a.Labels[key]
	vb, okb := b.Labels[key]
	return oka && okb && va == vb
}

func badNeighbours(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	near, apart, _, _ := affinityTerms(pod)
	for _, p := range c.pods {
		_, theirs, _, _ := affinityTerms(p)
		for _, t := range theirs {
			if c.means(p, t, pod) && together(c.node(p.Spec.NodeName), n, t.TopologyKey) {
				return true
			}
		}
		for _, t := range apart {
			if c.means(pod, t, p) && together(c.node(p.Spec.NodeName), n, t.TopologyKey) {
				return true
			}
		}
	}
	if len(near) == 0 {
		return false
	}
	// The pod must be near pods that match all of its terms.
	var wanted []*v1.Pod
	all := func(p *v1.Pod) bool {
		return !slices.ContainsFunc(near, func(t v1.PodAffinityTerm) bool { return !c.means(pod, t, p) })
	}
	anywhere := false // whether a matching pod is on a node that has one of the keys
	for _, p := range c.pods {
		if all(p) {
			wanted = append(wanted, p)
			for _, t := range near {
				anywhere = anywhere || together(c.node(p.Spec.NodeName), c.node(p.Spec.NodeName), t.TopologyKey)
			}
		}
	}
	satisfied := true
	for _, t := range near {
		if _, ok := n.Labels[t.TopologyKey]; !ok {
			return true
		}
		satisfied = satisfied && slices.ContainsFunc(wanted, func(p *v1.Pod) bool {
			return together(c.node(p.Spec.NodeName), n, t.TopologyKey)
		})
	}
	// No pod matches yet. A pod that matches its own terms may then run on any node, because
	// otherwise the first of several such pods could never run.
	return !satisfied && (anywhere || !all(pod))
}

func affinityScores(c *cluster, pod *v1.Pod, nodes []*v1.Node) []int64 {
	_, _, likes, dislikes := affinityTerms(pod)
	raw := make([]int64, len(nodes))
	for i, n := range nodes {
		for _, p := range c.pods {
			at := c.node(p.Spec.NodeName)
			add := func(owner, other *v1.Pod, t v1.PodAffinityTerm, weight int32) {
				if c.means(owner, t, other) && together(at, n, t.TopologyKey) {
					raw[i] += int64(weight)
				}
			}
			near, _, theirLikes, theirDislikes := affinityTerms(p)
			for _, t := range likes {
				add(pod, p, t.PodAffinityTerm, t.Weight)
			}
			for _, t := range dislikes {
				add(pod, p, t.PodAffinityTerm, -t.Weight)
			}
			for _, t := range theirLikes {
				add(p, pod, t.PodAffinityTerm, t.Weight)
			}
			for _, t := range theirDislikes {
				add(p, pod, t.PodAffinityTerm, -t.Weight)
			}
			for _, t := range near {
				add(p, pod, t, 1)
			}
		}
	}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, r := range raw {
		low, high = min(low, r), max(high, r)
	}
	for i, r := range raw {
		raw[i] = 0
		if high > low {
			raw[i] = int64(100 * (float64(r-low) / float64(high-low)))
		}
	}
	return raw
}
