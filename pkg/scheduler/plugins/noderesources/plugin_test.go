// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesources_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/scheduler/plugins/noderesources"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/keelson/pkg/scheduler/plugins/utilization"
	"keelson.dev/scheduling"
)

// classes is a DeviceView with device classes, by the extended resource that each provides.
type classes struct {
	scheduling.DeviceView
	byResource map[v1.ResourceName]*resourcev1.DeviceClass
}

func (c classes) ClassFor(name v1.ResourceName) *resourcev1.DeviceClass { return c.byResource[name] }

func TestFitRejects(t *testing.T) {
	small := func(n *v1.Node) {
		n.Status.Allocatable = plugintest.Amounts("cpu", "1", "memory", "1Gi", "pods", "2", "ephemeral-storage", "10Gi")
	}
	devices := func(n *v1.Node) { n.Status.Allocatable["example.com/d"] = plugintest.Amounts("d", "2")["d"] }
	huge := func(n *v1.Node) {
		n.Status.Allocatable = plugintest.Amounts("memory", "9223372036854775807", "pods", "9")
	}
	for name, tc := range map[string]struct {
		node *v1.Node
		pods []*v1.Pod // pods that are on the node
		pod  *v1.Pod
		fit  noderesources.Fit
		// class is true if a device class provides example.com/d.
		class bool
		want  string
	}{
		"no requests": {
			node: plugintest.Node("n", small), pod: plugintest.Pod("p"),
		},
		"exactly what is left": {
			node: plugintest.Node("n", small), pod: plugintest.Pod("p", plugintest.Requesting("cpu", "600m")),
			pods: []*v1.Pod{plugintest.Pod("o", plugintest.On("n"), plugintest.Requesting("cpu", "400m"))},
		},
		"one unit too many": {
			node: plugintest.Node("n", small), pod: plugintest.Pod("p", plugintest.Requesting("cpu", "601m")),
			pods: []*v1.Pod{plugintest.Pod("o", plugintest.On("n"), plugintest.Requesting("cpu", "400m"))},
			want: "~[Insufficient cpu]",
		},
		"more than the empty node has": {
			node: plugintest.Node("n", small), pod: plugintest.Pod("p",
				plugintest.Requesting("cpu", "2", "memory", "1Mi")),
			want: "[Insufficient cpu]",
		},
		"several resources in a fixed order": {
			node: plugintest.Node("n", small),
			pod: plugintest.Pod("p", plugintest.Requesting(
				"example.com/b", "1", "example.com/a", "1", "ephemeral-storage", "20Gi", "memory", "2Gi", "cpu", "2")),
			want: "[Insufficient cpu Insufficient memory Insufficient ephemeral-storage " +
				"Insufficient example.com/a Insufficient example.com/b]",
		},
		"too many pods": {
			node: plugintest.Node("n", small), pod: plugintest.Pod("p"),
			pods: []*v1.Pod{plugintest.Pod("a", plugintest.On("n")), plugintest.Pod("b", plugintest.On("n"))},
			want: "~[Too many pods]",
		},
		"device taken": {
			node: plugintest.Node("n", devices), pod: plugintest.Pod("p", plugintest.Requesting("example.com/d", "1")),
			pods: []*v1.Pod{plugintest.Pod("o", plugintest.On("n"), plugintest.Requesting("example.com/d", "2"))},
			want: "~[Insufficient example.com/d]",
		},
		"resource of an extender": {
			node: plugintest.Node("n"), pod: plugintest.Pod("p", plugintest.Requesting("example.com/d", "1")),
			fit: noderesources.Fit{Ignored: map[string]bool{"example.com/d": true}},
		},
		"resource group of an extender": {
			node: plugintest.Node("n"), pod: plugintest.Pod("p", plugintest.Requesting("example.com/d", "1")),
			fit: noderesources.Fit{IgnoredGroups: map[string]bool{"example.com": true}},
		},
		"device class, node without the resource": {
			node: plugintest.Node("n"), pod: plugintest.Pod("p",
				plugintest.Requesting("example.com/d", "9")), class: true,
		},
		"device class, node with too little": {
			node: plugintest.Node("n", devices), pod: plugintest.Pod("p",
				plugintest.Requesting("example.com/d", "9")), class: true,
			want: "[Insufficient example.com/d]",
		},
		"last byte of 2^63-1": {
			node: plugintest.Node("n", huge), pod: plugintest.Pod("p", plugintest.Requesting("memory", "1")),
			pods: []*v1.Pod{plugintest.Pod("o", plugintest.On("n"),
				plugintest.Requesting("memory", "9223372036854775806"))},
		},
		"one byte more than 2^63-1": {
			node: plugintest.Node("n", huge), pod: plugintest.Pod("p", plugintest.Requesting("memory", "2")),
			pods: []*v1.Pod{plugintest.Pod("o", plugintest.On("n"),
				plugintest.Requesting("memory", "9223372036854775806"))},
			want: "~[Insufficient memory]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			view, byResource := plugintest.NewView([]*v1.Node{tc.node},
				tc.pods...), map[v1.ResourceName]*resourcev1.DeviceClass{}
			if tc.class {
				byResource["example.com/d"] = &resourcev1.DeviceClass{}
			}
			view.DeviceView = classes{byResource: byResource}
			if got := view.Reject(tc.fit.Plugin(), tc.pod)["n"]; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestFitVersion checks that cached results of a class are computed again when a device class is
// created.
func TestFitVersion(t *testing.T) {
	view := plugintest.NewView([]*v1.Node{plugintest.Node("n")})
	c := classes{byResource: map[v1.ResourceName]*resourcev1.DeviceClass{}}
	view.DeviceView = c
	fit := &noderesources.Fit{}
	f, _ := fit.Plugin().Filter.Compile(view,
		view.NewPod(plugintest.Pod("p", plugintest.Requesting("example.com/d", "1"))))
	before := f.Version()
	if f.Check(view.NodeByName("n")) == nil {
		t.Error("fits without the resource")
	}
	c.byResource["example.com/d"] = &resourcev1.DeviceClass{}
	if f.Version() == before {
		t.Error("the version is the same with a class")
	}
	if st := f.Check(view.NodeByName("n")); st != nil {
		t.Error("does not fit with a class:", st.Reasons)
	}
}

func TestFitScores(t *testing.T) {
	nodes := []*v1.Node{plugintest.Node("empty"), plugintest.Node("half"), plugintest.Node("full")}
	pods := []*v1.Pod{
		plugintest.Pod("a", plugintest.On("half"), plugintest.Requesting("cpu", "2", "memory", "4Gi")),
		plugintest.Pod("b", plugintest.On("full"), plugintest.Requesting("cpu", "4", "memory", "8Gi")),
	}
	pod := plugintest.Pod("p", plugintest.Requesting("cpu", "1", "memory", "2Gi"))
	shape, errs := utilization.NewShape([]configv1.UtilizationShapePoint{
		{Utilization: 0, Score: 0}, {Utilization: 50, Score: 10}, {Utilization: 100, Score: 4},
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, tc := range map[string]struct {
		fit  noderesources.Fit
		want map[string]int64
	}{
		"least allocated": {
			noderesources.Fit{Strategy: noderesources.LeastAllocated}, map[string]int64{"empty": 75, "half": 25,
				"full": 0},
		},
		"most allocated": {
			noderesources.Fit{Strategy: noderesources.MostAllocated}, map[string]int64{"empty": 25, "half": 75,
				"full": 100},
		},
		"shape": {
			noderesources.Fit{Strategy: noderesources.RequestedToCapacityRatio, Shape: shape},
			map[string]int64{"empty": 50, "half": 70, "full": 40},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.fit.Resources = noderesources.DefaultResources()
			if diff := cmp.Diff(tc.want, plugintest.NewView(nodes, pods...).Score(tc.fit.Plugin(), pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestScoresOfAnyAmount compares scores with scores that are computed with big integers, up to the
// largest amounts.
func TestScoresOfAnyAmount(t *testing.T) {
	amount := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, math.MaxInt64))
	rapid.Check(t, func(t *rapid.T) {
		has, used, want := amount.Draw(t, "has"), amount.Draw(t, "used"), amount.Draw(t, "want")
		n := &scheduling.Node{Allocatable: scheduling.Resources{Memory: has},
			NonZero: scheduling.Resources{Memory: used}}
		total := new(big.Int).Add(big.NewInt(used), big.NewInt(want))
		if total.Cmp(big.NewInt(has)) > 0 {
			total = big.NewInt(has)
		}
		left := new(big.Int).Sub(big.NewInt(has), total)
		for strategy, part := range map[noderesources.Strategy]*big.Int{
			noderesources.LeastAllocated: left, noderesources.MostAllocated: total,
		} {
			fit := &noderesources.Fit{Strategy: strategy,
				Resources: []noderesources.Resource{{Name: v1.ResourceMemory, Weight: 1}}}
			s := fit.Plugin().Score.Compile(nil, &scheduling.Pod{NonZero: scheduling.Resources{Memory: want}})
			expected := int64(0)
			if has > 0 {
				hundred := new(big.Int).Mul(part, big.NewInt(scheduling.MaxNodeScore))
				expected = hundred.Div(hundred, big.NewInt(has)).Int64()
			}
			if got := s.Score(n); got != expected {
				t.Errorf("%s: %d, want %d", strategy, got, expected)
			}
		}
	})
}

func TestBalancedScores(t *testing.T) {
	balanced := &noderesources.Balanced{Resources: noderesources.DefaultResources()}
	view := plugintest.NewView([]*v1.Node{plugintest.Node("even"), plugintest.Node("cpu-used")},
		plugintest.Pod("a", plugintest.On("cpu-used"), plugintest.Requesting("cpu", "2")))
	// The pod requests half of the memory. On the node where half of the CPUs are used, both
	// resources are then used evenly.
	pod := plugintest.Pod("p", plugintest.Requesting("memory", "4Gi"))
	want := map[string]int64{"even": 62, "cpu-used": 87}
	if diff := cmp.Diff(want, view.Score(balanced.Plugin(), pod)); diff != "" {
		t.Error(diff)
	}
	if got := view.Score(balanced.Plugin(), plugintest.Pod("none")); got != nil {
		t.Error("a pod without requests is scored:", got)
	}
}
