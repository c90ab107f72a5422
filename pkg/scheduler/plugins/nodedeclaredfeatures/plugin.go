// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodedeclaredfeatures rejects nodes that do not declare the features that a pod's spec
// needs.
package nodedeclaredfeatures

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeDeclaredFeatures"

// kubernetes is the Kubernetes version whose rules determine which node features a pod needs.
const kubernetes = "1.37.2"

var lacking = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{"node(s) didn't match Pod's required features"},
}

// New returns the plugin. Its result depends on the node alone, but it has CellScope so that it
// runs after all other filters, as in Kubernetes.
func New() scheduling.Plugin {
	p := plugin{version.MustParse(kubernetes)}
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.CellScope, Events: scheduling.NodeAdded | scheduling.NodeFeaturesChanged, Compile: p.compile,
	}}
}

type plugin struct{ version *version.Version }

func (p plugin) compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&types.PodInfo{Spec: &pod.Spec}, p.version)
	if err != nil {
		return scheduling.Filter{}, &scheduling.Status{
			Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{err.Error()},
		}
	}
	if needs.IsEmpty() {
		return scheduling.Filter{}, nil
	}
	return scheduling.Filter{Check: func(n *scheduling.Node) *scheduling.Status {
		match, err := nodedeclaredfeatures.DefaultFramework.MatchNode(needs, n.Node)
		if err != nil || !match.IsMatch {
			return lacking
		}
		return nil
	}}, nil
}
