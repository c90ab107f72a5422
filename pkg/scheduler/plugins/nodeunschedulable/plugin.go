// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeunschedulable rejects cordoned nodes, unless the pod tolerates the taint
// node.kubernetes.io/unschedulable.
package nodeunschedulable

import (
	v1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeUnschedulable"

var cordoned = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{"node(s) were unschedulable"},
}

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.NodeScope, Events: scheduling.NodeAdded | scheduling.NodeTaintsChanged, Compile: compile,
	}}
}

func compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	taint := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &taint, false) {
		return scheduling.Filter{}, nil
	}
	return scheduling.Filter{Check: check}, nil
}

func check(n *scheduling.Node) *scheduling.Status {
	if n.Spec.Unschedulable {
		return cordoned
	}
	return nil
}
