// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodedeclaredfeatures rejects nodes that do not declare the features a
// pod's spec needs.
package nodedeclaredfeatures

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeDeclaredFeatures"

// kubernetes is the version of Kubernetes whose features are asked for.
const kubernetes = "1.36.3"

var lacking = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{"node(s) didn't match Pod's required features"},
}

// Plugin implements scheduling.FilterPlugin. Its verdict is one of the node
// alone, but its scope is the cell's so that, as in Kubernetes, it comes last.
type Plugin struct{ version *version.Version }

var _ scheduling.FilterPlugin = Plugin{}

// New returns the plugin.
func New() Plugin { return Plugin{version.MustParse(kubernetes)} }

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (Plugin) Scope() scheduling.Scope { return scheduling.CellScope }

// Events implements scheduling.FilterPlugin.
func (Plugin) Events() scheduling.Event {
	return scheduling.NodeAdded | scheduling.NodeFeaturesChanged
}

// Compile implements scheduling.FilterPlugin.
func (p Plugin) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&types.PodInfo{Spec: &pod.Spec}, p.version)
	if err != nil {
		return nil, &scheduling.Status{Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{err.Error()}}
	}
	if needs.IsEmpty() {
		return nil, nil
	}
	return filter{needs}, nil
}

type filter struct {
	needs nodedeclaredfeatures.FeatureSet
}

// Filter implements scheduling.Filter.
func (f filter) Filter(n *scheduling.Node) *scheduling.Status {
	match, err := nodedeclaredfeatures.DefaultFramework.MatchNode(f.needs, n.Node)
	if err != nil || !match.IsMatch {
		return lacking
	}
	return nil
}
