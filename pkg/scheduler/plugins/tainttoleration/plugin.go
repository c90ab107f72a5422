// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tainttoleration rejects nodes with NoSchedule and NoExecute taints
// the pod does not tolerate, and prefers those with fewer PreferNoSchedule ones.
package tainttoleration

import (
	v1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "TaintToleration"

var untolerated = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{"node(s) had untolerated taint(s)"},
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
	return scheduling.NodeAdded | scheduling.NodeTaintsChanged
}

// Compile implements scheduling.FilterPlugin.
func (Plugin) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	return filter(pod.Spec.Tolerations), nil
}

type filter []v1.Toleration

func (tolerations filter) Filter(n *scheduling.Node) *scheduling.Status {
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect != v1.TaintEffectPreferNoSchedule && !tolerates(tolerations, taint) {
			return untolerated
		}
	}
	return nil
}

// ScoreScope implements scheduling.ScorePlugin.
func (Plugin) ScoreScope() scheduling.Scope { return scheduling.NodeScope }

// CompileScore implements scheduling.ScorePlugin.
func (Plugin) CompileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	var soft []v1.Toleration
	for _, t := range pod.Spec.Tolerations {
		if t.Effect == "" || t.Effect == v1.TaintEffectPreferNoSchedule {
			soft = append(soft, t)
		}
	}
	return scorer(soft)
}

type scorer []v1.Toleration

func (tolerations scorer) Score(n *scheduling.Node) int64 {
	var intolerable int64
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect == v1.TaintEffectPreferNoSchedule && !tolerates(tolerations, taint) {
			intolerable++
		}
	}
	return intolerable
}

func (scorer) Normalize(_ []int32, scores []int64) { scheduling.ByMaxReversed.Apply(scores) }

// Normalization implements scheduling.Usual.
func (scorer) Normalization() scheduling.Normalization { return scheduling.ByMaxReversed }

func tolerates(tolerations []v1.Toleration, taint *v1.Taint) bool {
	return schedulinghelper.TolerationsTolerateTaint(klog.Background(), tolerations, taint, false)
}
