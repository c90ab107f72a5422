// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeunschedulable rejects cordoned nodes, unless the pod tolerates
// the taint that stands for the cordon.
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

// Plugin implements scheduling.FilterPlugin.
type Plugin struct{}

var _ scheduling.FilterPlugin = Plugin{}

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
	taint := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &taint, false) {
		return nil, nil
	}
	return filter{}, nil
}

type filter struct{}

func (filter) Filter(n *scheduling.Node) *scheduling.Status {
	if n.Spec.Unschedulable {
		return cordoned
	}
	return nil
}
