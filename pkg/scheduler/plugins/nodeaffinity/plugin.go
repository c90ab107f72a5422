// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeaffinity rejects nodes that do not match the pod's nodeSelector
// and required node affinity, and prefers those its preferred terms name.
package nodeaffinity

import (
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

// Plugin implements scheduling.FilterPlugin and scheduling.ScorePlugin.
type Plugin struct{}

var (
	_ scheduling.FilterPlugin = Plugin{}
	_ scheduling.ScorePlugin  = Plugin{}
)

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (Plugin) Scope() scheduling.Scope { return scheduling.NodeScope }

// Events implements scheduling.FilterPlugin.
func (Plugin) Events() scheduling.Event {
	return scheduling.NodeAdded | scheduling.NodeLabelsChanged
}

// Compile implements scheduling.FilterPlugin.
func (Plugin) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	a := pod.Spec.Affinity
	if len(pod.Spec.NodeSelector) == 0 &&
		(a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return nil, nil
	}
	return filter{nodeaffinity.GetRequiredNodeAffinity(pod.Pod)}, nil
}

type filter struct {
	required nodeaffinity.RequiredNodeAffinity
}

func (f filter) Filter(n *scheduling.Node) *scheduling.Status {
	// A term that does not parse matches nothing, as in Kubernetes.
	if ok, _ := f.required.Match(n.Node); !ok {
		return mismatch
	}
	return nil
}

// ScoreScope implements scheduling.ScorePlugin.
func (Plugin) ScoreScope() scheduling.Scope { return scheduling.NodeScope }

// CompileScore implements scheduling.ScorePlugin.
func (Plugin) CompileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	terms := preferred(pod.Pod)
	if len(terms) == 0 {
		return nil
	}
	compiled, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		return nil // refused by the API server; a preference that does not parse prefers nothing
	}
	return scorer{compiled}
}

func preferred(pod *v1.Pod) []v1.PreferredSchedulingTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

type scorer struct {
	terms *nodeaffinity.PreferredSchedulingTerms
}

func (s scorer) Score(n *scheduling.Node) int64 { return s.terms.Score(n.Node) }

func (scorer) Normalize(_ []int32, scores []int64) { scheduling.ByMax.Apply(scores) }

// Normalization implements scheduling.Usual.
func (scorer) Normalization() scheduling.Normalization { return scheduling.ByMax }
