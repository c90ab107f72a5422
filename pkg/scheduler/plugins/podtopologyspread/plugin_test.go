// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtopologyspread_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/keelson/pkg/scheduler/plugins/podtopologyspread"
)

const (
	skew  = "~[node(s) didn't match pod topology spread constraints]"
	label = "[node(s) didn't match pod topology spread constraints (missing required label)]"
)

// web returns a pod with the label app=web, which the constraints in these tests select.
func web(name string, change ...func(*v1.Pod)) *v1.Pod {
	return plugintest.Pod(name, append([]func(*v1.Pod){plugintest.Labelled("app", "web")}, change...)...)
}

func spread(key string, action v1.UnsatisfiableConstraintAction,
	change ...func(*v1.TopologySpreadConstraint)) func(*v1.Pod) {
	c := v1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: action,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
	for _, f := range change {
		f(&c)
	}
	return func(p *v1.Pod) { p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c) }
}

func hard(key string, change ...func(*v1.TopologySpreadConstraint)) func(*v1.Pod) {
	return spread(key, v1.DoNotSchedule, change...)
}

func twoZones() []*v1.Node {
	return []*v1.Node{
		plugintest.Node("x1", plugintest.InZone("x")), plugintest.Node("x2", plugintest.InZone("x")),
		plugintest.Node("y1", plugintest.InZone("y")),
	}
}

func TestFilter(t *testing.T) {
	tainted := plugintest.Node("z1", plugintest.InZone("z"), func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	})
	inX, inY := plugintest.On("x1"), plugintest.On("y1")
	zone := v1.LabelTopologyZone
	for name, tc := range map[string]struct {
		nodes []*v1.Node
		pods  []*v1.Pod
		pod   *v1.Pod
		want  map[string]string
	}{
		"no pods yet": {nil, nil, web("p", hard(zone)), map[string]string{}},
		"one zone is full": {nil, []*v1.Pod{web("a", inX)}, web("p", hard(zone)),
			map[string]string{"x1": skew, "x2": skew}},
		"even": {nil, []*v1.Pod{web("a", inX), web("b", inY)}, web("p", hard(zone)), map[string]string{}},
		"larger skew allowed": {
			nil, []*v1.Pod{web("a", inX)}, web("p",
				hard(zone, func(c *v1.TopologySpreadConstraint) { c.MaxSkew = 2 })), map[string]string{},
		},
		"other application": {nil, []*v1.Pod{plugintest.Pod("a", inX)}, web("p", hard(zone)), map[string]string{}},
		"other namespace": {nil, []*v1.Pod{web("a", inX, func(p *v1.Pod) { p.Namespace = "other" })},
			web("p", hard(zone)), map[string]string{}},
		"terminating pod": {nil,
			[]*v1.Pod{web("a", inX, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} })}, web("p",
				hard(zone)), map[string]string{}},
		"does not match itself": {nil, []*v1.Pod{web("a", inX)}, plugintest.Pod("p", hard(zone)), map[string]string{}},
		"node without the label": {
			append(twoZones(), plugintest.Node("none")), nil, web("p", hard(zone)), map[string]string{"none": label},
		},
		"too few domains": {
			nil, []*v1.Pod{web("a", inX), web("b", inY)},
			web("p", hard(zone, func(c *v1.TopologySpreadConstraint) { c.MinDomains = ptr.To[int32](3) })),
			map[string]string{"x1": skew, "x2": skew, "y1": skew},
		},
		"empty zone behind a taint counts": {
			append(twoZones(), tainted), []*v1.Pod{web("a", inX), web("b", inY)}, web("p", hard(zone)),
			map[string]string{"x1": skew, "x2": skew, "y1": skew},
		},
		"unless taints are honoured": {
			append(twoZones(), tainted), []*v1.Pod{web("a", inX), web("b", inY)},
			web("p", hard(zone,
				func(c *v1.TopologySpreadConstraint) { c.NodeTaintsPolicy = ptr.To(v1.NodeInclusionPolicyHonor) })),
			map[string]string{},
		},
		"zone outside the node selector does not count": {
			nil, []*v1.Pod{web("a", inX)},
			web("p", hard(zone),
				func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "x"} }), map[string]string{},
		},
		"unless node affinity is ignored": {
			nil, []*v1.Pod{web("a", inX)},
			web("p", hard(zone,
				func(c *v1.TopologySpreadConstraint) { c.NodeAffinityPolicy = ptr.To(v1.NodeInclusionPolicyIgnore) }),
				func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "x"} }),
			map[string]string{"x1": skew, "x2": skew},
		},
		"two constraints": {
			nil, []*v1.Pod{web("a", plugintest.On("x1")), web("b", inY)}, web("p", hard(zone), hard(v1.LabelHostname)),
			map[string]string{"x1": skew, "y1": skew},
		},
		"another version of the application does not count": {
			nil, []*v1.Pod{web("a", inX, plugintest.Labelled("version", "1"))},
			web("p", plugintest.Labelled("version", "2"),
				hard(zone, func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"version"} })),
			map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.nodes == nil {
				tc.nodes = twoZones()
			}
			plugin := podtopologyspread.New(podtopologyspread.Config{})
			if diff := cmp.Diff(tc.want, plugintest.NewView(tc.nodes, tc.pods...).Reject(plugin, tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAdjust checks that a node is accepted after Adjust removes a pod from it, and rejected again
// after Adjust adds the pod back.
func TestAdjust(t *testing.T) {
	view := plugintest.NewView(twoZones(), web("a", plugintest.On("x1")))
	pod := view.NewPod(web("p", hard(v1.LabelTopologyZone)))
	f, _ := podtopologyspread.New(podtopologyspread.Config{}).Filter.Compile(view, pod)
	x2 := view.NodeByName("x2")
	for _, step := range []struct {
		n        int
		rejected bool
	}{{0, true}, {-1, false}, {1, true}} {
		if step.n != 0 {
			f.Adjust(view.NodeByName("x1"), view.NodeByName("x1").Pods["a"], step.n)
		}
		if st := f.CheckAt(x2.Index); (st != nil) != step.rejected {
			t.Errorf("after Adjust(%d): %v", step.n, st)
		}
	}
}

func TestScore(t *testing.T) {
	soft := spread(v1.LabelTopologyZone, v1.ScheduleAnyway)
	owner := labels.SelectorFromSet(labels.Set{"app": "web"})
	there := []*v1.Pod{web("a", plugintest.On("x1")), web("b", plugintest.On("x2")), web("c", plugintest.On("y1"))}
	system := podtopologyspread.Config{Defaults: podtopologyspread.SystemDefaults(), SystemDefaulted: true}
	for name, tc := range map[string]struct {
		config podtopologyspread.Config
		owner  labels.Selector
		nodes  []*v1.Node
		pod    *v1.Pod
		want   map[string]int64
	}{
		"no constraint": {pod: web("p"), want: nil},
		"fewer pods in the zone": {
			pod: web("p", soft), want: map[string]int64{"x1": 33, "x2": 33, "y1": 100},
		},
		"node without the label": {
			nodes: append(twoZones(), plugintest.Node("none")), pod: web("p", soft),
			want: map[string]int64{"x1": 33, "x2": 33, "y1": 100, "none": 0},
		},
		"defaults without an owner": {config: system, pod: web("p"), want: nil},
		"defaults with an owner": {
			config: system, owner: owner, pod: web("p"),
			// Two pods in zone x count log(4) each, the pod in zone y counts log(4) once, and hosts
			// add log(5) each. With 4+2 for the allowed skew, the raw scores are 10 and 9. The
			// lowest raw score is best.
			want: map[string]int64{"x1": 90, "x2": 90, "y1": 100},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.nodes == nil {
				tc.nodes = twoZones()
			}
			view := plugintest.NewView(tc.nodes, there...)
			view.Owner = tc.owner
			if diff := cmp.Diff(tc.want, view.Score(podtopologyspread.New(tc.config), tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
