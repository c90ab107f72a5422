// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodename rejects every node but the one in pod.spec.nodeName.
package nodename

import "keelson.dev/scheduling"

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeName"

var mismatch = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name,
	Reasons: []string{"node(s) didn't match the requested node name"},
}

// Plugin implements scheduling.FilterPlugin.
type Plugin struct{}

var _ scheduling.FilterPlugin = Plugin{}

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (Plugin) Scope() scheduling.Scope { return scheduling.NodeScope }

// Events implements scheduling.FilterPlugin.
func (Plugin) Events() scheduling.Event { return scheduling.NodeAdded }

// Compile implements scheduling.FilterPlugin.
func (Plugin) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	return filter(pod.Spec.NodeName), nil
}

type filter string

func (want filter) Filter(n *scheduling.Node) *scheduling.Status {
	if n.Name != string(want) {
		return mismatch
	}
	return nil
}
