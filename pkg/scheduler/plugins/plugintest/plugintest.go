// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugintest helps to test scheduler plugins: it builds pods and nodes in a real Cell
// (package cell), and evaluates them with one plugin. It must be imported by tests only.
package plugintest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// View is a cell (the scheduler's picture of all nodes and pods) together with other objects that a
// test sets. It is not safe for concurrent use.
type View struct {
	*cell.Cell
	// VolumeView and DeviceView are nil unless the test sets them.
	VolumeView scheduling.VolumeView
	DeviceView scheduling.DeviceView
	// Namespaces has the labels of namespaces.
	Namespaces map[string]labels.Set
	// Owner is the selector of the Service or controller that every pod belongs to.
	Owner labels.Selector
}

// NewView returns a view of the given nodes and of the pods that are on them.
func NewView(nodes []*v1.Node, pods ...*v1.Pod) *View {
	v := &View{Cell: cell.New()}
	for _, n := range nodes {
		v.SetNode(n)
	}
	for _, p := range pods {
		v.SetPod(p)
	}
	return v
}

// Repelled implements scheduling.View.
func (*View) Repelled() bool { return false }

// Keep implements scheduling.View. It does not cache tallies.
func (*View) Keep(_ string, newTally func() scheduling.Tally) scheduling.Tally { return newTally() }

// NamespaceLabels implements scheduling.View.
func (v *View) NamespaceLabels(namespace string) labels.Set { return v.Namespaces[namespace] }

// Selectors implements scheduling.View.
func (v *View) Selectors(*v1.Pod) labels.Selector { return v.Owner }

// Volumes implements scheduling.View.
func (v *View) Volumes() scheduling.VolumeView { return v.VolumeView }

// Devices implements scheduling.View.
func (v *View) Devices() scheduling.DeviceView { return v.DeviceView }

// Reject evaluates all nodes with a plugin's filter. It returns the reasons for rejection by node
// name. If the pod is rejected on all nodes at once, the reason has the key "". Reasons that
// removing pods may resolve start with "~".
func (v *View) Reject(p scheduling.Plugin, pod *v1.Pod) map[string]string {
	f, st := p.Filter.Compile(v, v.NewPod(pod))
	if st != nil {
		return map[string]string{"": text(st)}
	}
	out := map[string]string{}
	for _, n := range v.Nodes() {
		if st := check(f, n); st != nil {
			out[n.Name] = text(st)
		}
	}
	return out
}

func check(f scheduling.Filter, n *scheduling.Node) *scheduling.Status {
	switch {
	case f.CheckAt != nil:
		return f.CheckAt(n.Index)
	case f.Check != nil:
		return f.Check(n)
	}
	return nil
}

func text(st *scheduling.Status) string {
	if st.Code == scheduling.Unschedulable {
		return fmt.Sprint("~", st.Reasons)
	}
	return fmt.Sprint(st.Reasons)
}

// Score returns the normalized scores of all nodes, by node name. It returns nil if the plugin has
// no scorer for the pod, which means that all nodes have the same score.
func (v *View) Score(p scheduling.Plugin, pod *v1.Pod) map[string]int64 {
	s := p.Score.Compile(v, v.NewPod(pod))
	if s.Score == nil && s.ScoreAt == nil {
		return nil
	}
	nodes := make([]int32, len(v.Nodes()))
	for i := range nodes {
		nodes[i] = int32(i) // tests have few nodes, so this does not overflow
	}
	if s.Prepare != nil {
		s.Prepare(slices.Clone(nodes))
	}
	scores := make([]int64, len(nodes))
	for i, n := range v.Nodes() {
		if s.ScoreAt != nil {
			scores[i] = s.ScoreAt(i)
		} else {
			scores[i] = s.Score(n)
		}
	}
	if s.Normalize != nil {
		s.Normalize(nodes, scores)
	} else {
		s.Normalization.Apply(scores)
	}
	out := map[string]int64{}
	for i, n := range v.Nodes() {
		out[n.Name] = scores[i]
	}
	return out
}

// Node returns a node with 4 CPUs, 8 GiB of memory and room for 10 pods, after the functions change
// have modified it.
func Node(name string, change ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status:     v1.NodeStatus{Allocatable: Amounts("cpu", "4", "memory", "8Gi", "pods", "10")},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// InZone puts a node into a zone.
func InZone(zone string) func(*v1.Node) {
	return func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = zone }
}

// Pod returns a pod with one container, after the functions change have modified it. View places a
// pod with a node name on that node.
func Pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// On puts a pod on a node.
func On(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }

// Labelled sets a label of a pod.
func Labelled(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

// Requesting sets the requests of a pod's container. amounts alternates between names of resources
// and their amounts.
func Requesting(amounts ...string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = Amounts(amounts...) }
}

// Amounts returns a list of resources. amounts alternates between names of resources and their
// amounts.
func Amounts(amounts ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[v1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return list
}
