// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodename rejects every node except the node in pod.spec.nodeName, if that is set.
package nodename

import "keelson.dev/scheduling"

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeName"

var mismatch = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name,
	Reasons: []string{"node(s) didn't match the requested node name"},
}

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.NodeScope, Events: scheduling.NodeAdded, Compile: compile,
	}}
}

func compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	want := pod.Spec.NodeName
	if want == "" {
		return scheduling.Filter{}, nil
	}
	return scheduling.Filter{Check: func(n *scheduling.Node) *scheduling.Status {
		if n.Name != want {
			return mismatch
		}
		return nil
	}}, nil
}
