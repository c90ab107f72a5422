// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/scheduling"
)

const (
	name       = "NeedsLabel"
	annotation = "example.com/needs-label"
)

// missing is used for all nodes: a plugin has one Status for each reason, not one for each node.
var missing = &scheduling.Status{
	Code: scheduling.Unresolvable, Plugin: name, Reasons: []string{"node(s) lacked a label"},
}

// NeedsLabel returns a plugin that rejects nodes without the label that an annotation of the pod
// names. The annotation does not belong to the pod's class, so the scope is CellScope.
func NeedsLabel() scheduling.Plugin {
	return scheduling.Plugin{Name: name, Filter: &scheduling.FilterPoint{
		Scope:   scheduling.CellScope,
		Events:  scheduling.NodeAdded | scheduling.NodeLabelsChanged | scheduling.PodChanged,
		Compile: compile,
	}}
}

func compile(_ scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	label, ok := pod.Annotations[annotation]
	if !ok {
		return scheduling.Filter{}, nil // the plugin accepts all nodes
	}
	return scheduling.Filter{Check: func(node *scheduling.Node) *scheduling.Status {
		if _, ok := node.Labels[label]; !ok {
			return missing
		}
		return nil
	}}, nil
}

// This example compiles the requirement of a pod once, and then evaluates two nodes.
func Example() {
	pod := &scheduling.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Annotations: map[string]string{annotation: "disk"},
	}}}
	filter, rejected := NeedsLabel().Filter.Compile(nil, pod)
	if rejected != nil {
		fmt.Println(rejected.Reasons)
		return
	}
	for _, labels := range []map[string]string{{"disk": "fast"}, {}} {
		node := &scheduling.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}}}
		if status := filter.Check(node); status != nil {
			fmt.Println(status.Reasons)
			continue
		}
		fmt.Println("fits")
	}
	// Output:
	// fits
	// [node(s) lacked a label]
}

// FewestPods returns a plugin that prefers nodes with fewer pods. It looks only at the node, so the
// scope is NodeScope and the scheduler caches the scores.
func FewestPods() scheduling.Plugin {
	return scheduling.Plugin{Name: "FewestPods", Score: &scheduling.ScorePoint{
		Scope: scheduling.NodeScope,
		Compile: func(scheduling.View, *scheduling.Pod) scheduling.Scorer {
			return scheduling.Scorer{
				Score:         func(node *scheduling.Node) int64 { return int64(len(node.Pods)) },
				Normalization: scheduling.ByMaxReversed,
			}
		},
	}}
}

// A scorer returns raw scores. Its Normalization maps them to 0..MaxNodeScore.
func ExampleScorer() {
	scorer := FewestPods().Score.Compile(nil, &scheduling.Pod{Pod: &v1.Pod{}})
	var scores []int64
	for _, pods := range []int{0, 1, 4} {
		node := &scheduling.Node{Node: &v1.Node{}, Pods: map[string]*scheduling.Pod{}}
		for i := range pods {
			node.Pods[fmt.Sprint(i)] = &scheduling.Pod{}
		}
		scores = append(scores, scorer.Score(node))
	}
	scorer.Normalization.Apply(scores)
	fmt.Println(scores)
	// Output:
	// [100 75 0]
}

// zones counts the pods in each zone.
type zones struct {
	topology *scheduling.Topology
	pods     []int
}

// Adjust implements scheduling.Tally.
func (z *zones) Adjust(node *scheduling.Node, _ *scheduling.Pod, n int) {
	if zone := z.topology.Of[node.Index]; zone != scheduling.NoDomain {
		z.pods[zone] += n
	}
}

// Keep returns a count in the plugin's own type. The view keeps the count up to date.
func ExampleKeep() {
	quietest := func(view scheduling.View) int {
		z := scheduling.Keep(view, "QuietZones pods", func() *zones {
			z := &zones{topology: view.Topology(v1.LabelTopologyZone)}
			z.pods = make([]int, z.topology.Domains)
			for _, node := range view.Nodes() {
				for _, pod := range node.Pods {
					z.Adjust(node, pod, 1)
				}
			}
			return z
		})
		lowest := 0
		for zone, pods := range z.pods {
			if pods < z.pods[lowest] {
				lowest = zone
			}
		}
		return lowest
	}
	fmt.Println(quietest(twoZones{}))
	// Output:
	// 1
}

// twoZones is a view of two nodes in two zones. The first node has a pod, the second has none.
type twoZones struct{ scheduling.View }

func (twoZones) Nodes() []*scheduling.Node {
	pod := &scheduling.Pod{Pod: &v1.Pod{}}
	return []*scheduling.Node{
		{Node: &v1.Node{}, Index: 0, Pods: map[string]*scheduling.Pod{"a": pod}},
		{Node: &v1.Node{}, Index: 1},
	}
}

func (twoZones) Topology(key string) *scheduling.Topology {
	return &scheduling.Topology{Key: key, Of: []int32{0, 1}, Domains: 2}
}

func (twoZones) Keep(_ string, newTally func() scheduling.Tally) scheduling.Tally { return newTally() }
