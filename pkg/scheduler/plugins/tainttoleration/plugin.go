// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tainttoleration rejects nodes with NoSchedule and NoExecute taints that the pod does not
// tolerate, and prefers nodes with fewer PreferNoSchedule taints that it does not tolerate.
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

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{
		Name: Name,
		Filter: &scheduling.FilterPoint{
			Scope: scheduling.NodeScope, Compile: compileFilter,
			Events: scheduling.NodeAdded | scheduling.NodeTaintsChanged,
		},
		Score: &scheduling.ScorePoint{Scope: scheduling.NodeScope, Compile: compileScore},
	}
}

func compileFilter(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	tolerations := pod.Spec.Tolerations
	return scheduling.Filter{Check: func(n *scheduling.Node) *scheduling.Status {
		for i := range n.Spec.Taints {
			taint := &n.Spec.Taints[i]
			if taint.Effect != v1.TaintEffectPreferNoSchedule && !tolerates(tolerations, taint) {
				return untolerated
			}
		}
		return nil
	}}, nil
}

func compileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	var tolerations []v1.Toleration
	for _, t := range pod.Spec.Tolerations {
		if t.Effect == "" || t.Effect == v1.TaintEffectPreferNoSchedule {
			tolerations = append(tolerations, t)
		}
	}
	return scheduling.Scorer{
		Score: func(n *scheduling.Node) int64 {
			var intolerable int64
			for i := range n.Spec.Taints {
				taint := &n.Spec.Taints[i]
				if taint.Effect == v1.TaintEffectPreferNoSchedule && !tolerates(tolerations, taint) {
					intolerable++
				}
			}
			return intolerable
		},
		Normalization: scheduling.ByMaxReversed,
	}
}

func tolerates(tolerations []v1.Toleration, taint *v1.Taint) bool {
	return schedulinghelper.TolerationsTolerateTaint(klog.Background(), tolerations, taint, false)
}
