// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/scheduling"
)

const annotation = "example.com/needs-label"

// NeedsLabel rejects nodes without a label that a pod's annotation names.
type NeedsLabel struct{}

var _ scheduling.FilterPlugin = NeedsLabel{}

// Name implements scheduling.Plugin.
func (NeedsLabel) Name() string { return "NeedsLabel" }

// Scope implements scheduling.FilterPlugin. The annotation is not part of a pod's class, so
// the verdict must not be kept for all pods of the class.
func (NeedsLabel) Scope() scheduling.Scope { return scheduling.CellScope }

// Events implements scheduling.FilterPlugin: what can make a rejected pod fit.
func (NeedsLabel) Events() scheduling.Event {
	return scheduling.NodeAdded | scheduling.NodeLabelsChanged | scheduling.PodChanged
}

// Compile implements scheduling.FilterPlugin.
func (NeedsLabel) Compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	label, ok := pod.Annotations[annotation]
	if !ok {
		return nil, nil
	}
	return labelFilter(label), nil
}

type labelFilter string

// Filter implements scheduling.Filter.
func (label labelFilter) Filter(node *scheduling.Node) *scheduling.Status {
	if _, ok := node.Labels[string(label)]; ok {
		return nil
	}
	return &scheduling.Status{
		Code: scheduling.Unresolvable, Plugin: "NeedsLabel", Reasons: []string{"node(s) lacked a label"},
	}
}

// A plugin compiles what a pod asks for once, and then evaluates nodes.
func Example() {
	pod := &scheduling.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Annotations: map[string]string{annotation: "disk"},
	}}}
	filter, rejected := NeedsLabel{}.Compile(nil, pod)
	if rejected != nil {
		fmt.Println(rejected.Reasons)
		return
	}
	for _, labels := range []map[string]string{{"disk": "fast"}, {}} {
		node := &scheduling.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}}}
		if status := filter.Filter(node); status != nil {
			fmt.Println(status.Reasons)
			continue
		}
		fmt.Println("fits")
	}
	// Output:
	// fits
	// [node(s) lacked a label]
}
