// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeports rejects nodes on which another pod uses a host port that the pod requests.
package nodeports

import "keelson.dev/scheduling"

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodePorts"

var taken = &scheduling.Status{
	Code: scheduling.Unschedulable, Plugin: Name,
	Reasons: []string{"node(s) didn't have free ports for the requested pod ports"},
}

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.NodeScope, Events: scheduling.NodeAdded | scheduling.PodRemoved, Compile: compile,
	}}
}

func compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	ports := pod.HostPorts
	if len(ports) == 0 {
		return scheduling.Filter{}, nil
	}
	return scheduling.Filter{Check: func(n *scheduling.Node) *scheduling.Status {
		for _, p := range ports {
			if !n.PortFree(p) {
				return taken
			}
		}
		return nil
	}}, nil
}
