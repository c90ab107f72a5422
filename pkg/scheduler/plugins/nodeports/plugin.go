// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeports rejects nodes on which a host port the pod wants is taken.
package nodeports

import "keelson.dev/scheduling"

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodePorts"

var taken = &scheduling.Status{
	Code: scheduling.Unschedulable, Plugin: Name,
	Reasons: []string{"node(s) didn't have free ports for the requested pod ports"},
}

// Plugin implements scheduling.FilterPlugin.
type Plugin struct{}

var _ scheduling.FilterPlugin = Plugin{}

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (Plugin) Scope() scheduling.Scope { return scheduling.NodeScope }

// Events implements scheduling.FilterPlugin.
func (Plugin) Events() scheduling.Event { return scheduling.NodeAdded | scheduling.PodRemoved }

// Compile implements scheduling.FilterPlugin.
func (Plugin) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	if len(pod.HostPorts) == 0 {
		return nil, nil
	}
	return filter(pod.HostPorts), nil
}

type filter []scheduling.HostPort

func (ports filter) Filter(n *scheduling.Node) *scheduling.Status {
	for _, p := range ports {
		if !n.PortFree(p) {
			return taken
		}
	}
	return nil
}
