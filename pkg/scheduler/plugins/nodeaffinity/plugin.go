// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeaffinity rejects nodes that do not match the pod's nodeSelector and required node
// affinity, and prefers nodes that match its preferred terms.
package nodeaffinity

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeAffinity"

var mismatch = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name,
	Reasons: []string{"node(s) didn't match Pod's node affinity/selector"},
}

var enforced = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name,
	Reasons: []string{"node(s) didn't match scheduler-enforced node affinity"},
}

// plugin has the node affinity that the configuration adds to the affinity of every pod. It is nil
// if the configuration adds none.
type plugin struct {
	required  *nodeaffinity.NodeSelector
	preferred *nodeaffinity.PreferredSchedulingTerms
}

// New returns the plugin. added is node affinity that applies to every pod in addition to the pod's
// own; it may be nil. New returns an error if added does not parse.
func New(added *v1.NodeAffinity) (scheduling.Plugin, error) {
	p, err := parse(added)
	if err != nil {
		return scheduling.Plugin{}, fmt.Errorf("addedAffinity: %w", err)
	}
	return scheduling.Plugin{
		Name: Name,
		Filter: &scheduling.FilterPoint{
			Scope: scheduling.NodeScope, Compile: p.compileFilter,
			Events: scheduling.NodeAdded | scheduling.NodeLabelsChanged,
		},
		Score: &scheduling.ScorePoint{Scope: scheduling.NodeScope, Compile: p.compileScore},
	}, nil
}

func parse(added *v1.NodeAffinity) (p plugin, err error) {
	if added == nil {
		return p, nil
	}
	if r := added.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		if p.required, err = nodeaffinity.NewNodeSelector(r); err != nil {
			return p, err
		}
	}
	if terms := added.PreferredDuringSchedulingIgnoredDuringExecution; len(terms) > 0 {
		p.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(terms)
	}
	return p, err
}

func (p plugin) compileFilter(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	a := pod.Spec.Affinity
	if p.required == nil && len(pod.Spec.NodeSelector) == 0 &&
		(a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return scheduling.Filter{}, nil
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Pod)
	return scheduling.Filter{Check: func(n *scheduling.Node) *scheduling.Status {
		if p.required != nil && !p.required.Match(n.Node) {
			return enforced
		}
		// A term that does not parse matches no node, as in Kubernetes.
		if ok, _ := required.Match(n.Node); !ok {
			return mismatch
		}
		return nil
	}}, nil
}

func (p plugin) compileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	var terms *nodeaffinity.PreferredSchedulingTerms
	if wanted := preferred(pod.Pod); len(wanted) > 0 {
		// The API server rejects terms that do not parse. If the pod has such a term anyway, all
		// its preferred terms are ignored.
		if compiled, err := nodeaffinity.NewPreferredSchedulingTerms(wanted); err == nil {
			terms = compiled
		}
	}
	if p.preferred == nil && terms == nil {
		return scheduling.Scorer{}
	}
	return scheduling.Scorer{
		Score: func(n *scheduling.Node) int64 {
			var sum int64
			if p.preferred != nil {
				sum += p.preferred.Score(n.Node)
			}
			if terms != nil {
				sum += terms.Score(n.Node)
			}
			return sum
		},
		Normalization: scheduling.ByMax,
	}
}

func preferred(pod *v1.Pod) []v1.PreferredSchedulingTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}
