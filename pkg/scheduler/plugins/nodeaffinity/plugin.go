// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeaffinity rejects nodes that do not match the pod's nodeSelector
// and required node affinity, and prefers those its preferred terms name.
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

// Plugin implements scheduling.FilterPlugin and scheduling.ScorePlugin.
type Plugin struct {
	required  *nodeaffinity.NodeSelector // of all pods; nil: none
	preferred *nodeaffinity.PreferredSchedulingTerms
}

var (
	_ scheduling.FilterPlugin = (*Plugin)(nil)
	_ scheduling.ScorePlugin  = (*Plugin)(nil)
)

// New returns the plugin with the affinity that configuration adds to that of
// every pod; nil adds none.
func New(added *v1.NodeAffinity) (*Plugin, error) {
	p := &Plugin{}
	if added == nil {
		return p, nil
	}
	var err error
	if r := added.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		if p.required, err = nodeaffinity.NewNodeSelector(r); err != nil {
			return nil, fmt.Errorf("addedAffinity: %w", err)
		}
	}
	if terms := added.PreferredDuringSchedulingIgnoredDuringExecution; len(terms) > 0 {
		if p.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(terms); err != nil {
			return nil, fmt.Errorf("addedAffinity: %w", err)
		}
	}
	return p, nil
}

// Name implements scheduling.Plugin.
func (*Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (*Plugin) Scope() scheduling.Scope { return scheduling.NodeScope }

// Events implements scheduling.FilterPlugin.
func (*Plugin) Events() scheduling.Event {
	return scheduling.NodeAdded | scheduling.NodeLabelsChanged
}

// Compile implements scheduling.FilterPlugin.
func (p *Plugin) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	a := pod.Spec.Affinity
	if p.required == nil && len(pod.Spec.NodeSelector) == 0 &&
		(a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return nil, nil
	}
	return filter{p.required, nodeaffinity.GetRequiredNodeAffinity(pod.Pod)}, nil
}

type filter struct {
	added    *nodeaffinity.NodeSelector
	required nodeaffinity.RequiredNodeAffinity
}

func (f filter) Filter(n *scheduling.Node) *scheduling.Status {
	if f.added != nil && !f.added.Match(n.Node) {
		return enforced
	}
	// A term that does not parse matches nothing, as in Kubernetes.
	if ok, _ := f.required.Match(n.Node); !ok {
		return mismatch
	}
	return nil
}

// ScoreScope implements scheduling.ScorePlugin.
func (*Plugin) ScoreScope() scheduling.Scope { return scheduling.NodeScope }

// CompileScore implements scheduling.ScorePlugin.
func (p *Plugin) CompileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	s := scorer{added: p.preferred}
	if terms := preferred(pod.Pod); len(terms) > 0 {
		compiled, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
		if err == nil { // else refused by the API server: it prefers nothing
			s.terms = compiled
		}
	}
	if s.added == nil && s.terms == nil {
		return nil
	}
	return s
}

func preferred(pod *v1.Pod) []v1.PreferredSchedulingTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

type scorer struct {
	added, terms *nodeaffinity.PreferredSchedulingTerms
}

func (s scorer) Score(n *scheduling.Node) int64 {
	var sum int64
	if s.added != nil {
		sum += s.added.Score(n.Node)
	}
	if s.terms != nil {
		sum += s.terms.Score(n.Node)
	}
	return sum
}

func (scorer) Normalize(_ []int32, scores []int64) { scheduling.ByMax.Apply(scores) }

// Normalization implements scheduling.Usual.
func (scorer) Normalization() scheduling.Normalization { return scheduling.ByMax }
