// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package interpodaffinity_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/scheduler/plugins/interpodaffinity"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
)

const (
	noAffinity   = "[node(s) didn't match pod affinity rules]"
	antiAffinity = "~[node(s) didn't match pod anti-affinity rules]"
	existingAnti = "~[node(s) didn't satisfy existing pods anti-affinity rules]"
)

func term(key, app string, change ...func(*v1.PodAffinityTerm)) v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{TopologyKey: key,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
	for _, f := range change {
		f(&t)
	}
	return t
}

func affinity(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func near(terms ...v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) { affinity(p).PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms }
}

func apart(terms ...v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) { affinity(p).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms }
}

func preferNear(weight int32, t v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		a := affinity(p).PodAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			v1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: t})
	}
}

func preferApart(weight int32, t v1.PodAffinityTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		a := affinity(p).PodAntiAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			v1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: t})
	}
}

func app(name string) func(*v1.Pod) { return plugintest.Labelled("app", name) }

func inNamespace(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Namespace = name } }

func nodes() []*v1.Node {
	return []*v1.Node{
		plugintest.Node("x1", plugintest.InZone("x")), plugintest.Node("x2", plugintest.InZone("x")),
		plugintest.Node("y1", plugintest.InZone("y")), plugintest.Node("none"),
	}
}

func TestFilter(t *testing.T) {
	zone, host := v1.LabelTopologyZone, v1.LabelHostname
	on := plugintest.On
	for name, tc := range map[string]struct {
		there []*v1.Pod
		pod   *v1.Pod
		want  map[string]string
	}{
		"nothing asked": {[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"))}, plugintest.Pod("p"),
			map[string]string{}},
		"near, in the zone": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"))}, plugintest.Pod("p", near(term(zone, "db"))),
			map[string]string{"y1": noAffinity, "none": noAffinity},
		},
		"near, on the host": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"))}, plugintest.Pod("p", near(term(host, "db"))),
			map[string]string{"x2": noAffinity, "y1": noAffinity, "none": noAffinity},
		},
		"near two applications that are in different zones": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1")), plugintest.Pod("b", app("cache"), on("y1"))},
			plugintest.Pod("p", near(term(zone, "db"), term(zone, "cache"))),
			map[string]string{"x1": noAffinity, "x2": noAffinity, "y1": noAffinity, "none": noAffinity},
		},
		"first of its kind": {
			nil, plugintest.Pod("p", app("db"), near(term(zone, "db"))), map[string]string{"none": noAffinity},
		},
		"first, but of another kind": {
			nil, plugintest.Pod("p", app("web"), near(term(zone, "db"))),
			map[string]string{"x1": noAffinity, "x2": noAffinity, "y1": noAffinity, "none": noAffinity},
		},
		"near a pod of another namespace": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"), inNamespace("red"))},
			plugintest.Pod("p", near(term(zone, "db", func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"red"} }))),
			map[string]string{"y1": noAffinity, "none": noAffinity},
		},
		"near a pod of a selected namespace": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"), inNamespace("red"))},
			plugintest.Pod("p", near(term(zone, "db", func(t *v1.PodAffinityTerm) {
				t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
			}))),
			map[string]string{"y1": noAffinity, "none": noAffinity},
		},
		"apart, in the zone": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"))}, plugintest.Pod("p", apart(term(zone, "db"))),
			map[string]string{"x1": antiAffinity, "x2": antiAffinity},
		},
		"apart, but from another namespace": {
			[]*v1.Pod{plugintest.Pod("a", app("db"), on("x1"), inNamespace("red"))}, plugintest.Pod("p",
				apart(term(zone, "db"))),
			map[string]string{},
		},
		"a pod on a node keeps away": {
			[]*v1.Pod{plugintest.Pod("a", apart(term(zone, "web")), on("x1"))}, plugintest.Pod("p", app("web")),
			map[string]string{"x1": existingAnti, "x2": existingAnti},
		},
		"a pod on a node keeps others away": {
			[]*v1.Pod{plugintest.Pod("a", apart(term(zone, "web")), on("x1"))}, plugintest.Pod("p",
				app("db")), map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView(nodes(), tc.there...)
			view.Namespaces = map[string]labels.Set{"red": {"team": "red"}}
			plugin := interpodaffinity.New(interpodaffinity.Config{HardWeight: 1})
			if diff := cmp.Diff(tc.want, view.Reject(plugin, tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScore(t *testing.T) {
	zone := v1.LabelTopologyZone
	db := plugintest.Pod("a", app("db"), plugintest.On("x1"))
	for name, tc := range map[string]struct {
		config interpodaffinity.Config
		there  []*v1.Pod
		pod    *v1.Pod
		want   map[string]int64
	}{
		"nothing preferred": {interpodaffinity.Config{HardWeight: 1}, []*v1.Pod{db}, plugintest.Pod("p"), nil},
		"near": {
			interpodaffinity.Config{}, []*v1.Pod{db}, plugintest.Pod("p", preferNear(5, term(zone, "db"))),
			map[string]int64{"x1": 100, "x2": 100, "y1": 0, "none": 0},
		},
		"apart": {
			interpodaffinity.Config{}, []*v1.Pod{db}, plugintest.Pod("p", preferApart(5, term(zone, "db"))),
			map[string]int64{"x1": 0, "x2": 0, "y1": 100, "none": 100},
		},
		"zone against host": {
			interpodaffinity.Config{}, []*v1.Pod{db},
			plugintest.Pod("p", preferNear(4, term(zone, "db")), preferApart(3, term(v1.LabelHostname, "db"))),
			map[string]int64{"x1": 25, "x2": 100, "y1": 0, "none": 0},
		},
		"a pod on a node prefers the incoming one": {
			interpodaffinity.Config{}, []*v1.Pod{plugintest.Pod("a", preferNear(5, term(zone, "web")),
				plugintest.On("y1"))},
			plugintest.Pod("p", app("web")), map[string]int64{"x1": 0, "x2": 0, "y1": 100, "none": 0},
		},
		"which can be ignored": {
			interpodaffinity.Config{IgnoreExistingPreferred: true},
			[]*v1.Pod{plugintest.Pod("a", preferNear(5, term(zone, "web")), plugintest.On("y1"))}, plugintest.Pod("p",
				app("web")), nil,
		},
		"a pod on a node requires the incoming one": {
			interpodaffinity.Config{HardWeight: 1}, []*v1.Pod{plugintest.Pod("a", near(term(zone, "web")),
				plugintest.On("y1"))},
			plugintest.Pod("p", app("web")), map[string]int64{"x1": 0, "x2": 0, "y1": 100, "none": 0},
		},
		"which counts nothing with weight 0": {
			interpodaffinity.Config{}, []*v1.Pod{plugintest.Pod("a", near(term(zone, "web")), plugintest.On("y1"))},
			plugintest.Pod("p", app("web")), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView(nodes(), tc.there...)
			if diff := cmp.Diff(tc.want, view.Score(interpodaffinity.New(tc.config), tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAdjustEqualsCompile adjusts a filter for added and removed pods, and checks that it gives the
// same results as a filter that is compiled afterwards.
func TestAdjustEqualsCompile(t *testing.T) {
	plugin := interpodaffinity.New(interpodaffinity.Config{HardWeight: 1})
	draw := func(t *rapid.T, name string) *v1.Pod {
		terms := func(what string) (out []v1.PodAffinityTerm) {
			for range rapid.IntRange(0, 2).Draw(t, what) {
				out = append(out,
					term(rapid.SampledFrom([]string{v1.LabelTopologyZone, v1.LabelHostname}).Draw(t, "key"),
						rapid.SampledFrom([]string{"db", "web"}).Draw(t, "app")))
			}
			return out
		}
		return plugintest.Pod(name, app(rapid.SampledFrom([]string{"db", "web"}).Draw(t, "own app")),
			near(terms("near")...), apart(terms("apart")...))
	}
	rapid.Check(t, func(t *rapid.T) {
		var there []*v1.Pod
		for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
			p := draw(t, fmt.Sprint("p", i))
			plugintest.On(rapid.SampledFrom([]string{"x1", "x2", "y1", "none"}).Draw(t, "node"))(p)
			there = append(there, p)
		}
		split := rapid.IntRange(0, len(there)).Draw(t, "known before")
		view := plugintest.NewView(nodes(), there[:split]...)
		incoming := draw(t, "incoming")
		f, _ := plugin.Filter.Compile(repelled{view}, view.NewPod(incoming))
		for _, p := range there[split:] {
			f.Adjust(view.NodeByName(p.Spec.NodeName), view.NewPod(p), 1)
		}
		want := plugintest.NewView(nodes(), there...).Reject(plugin, incoming)
		for _, n := range view.Nodes() {
			if st := f.CheckAt(n.Index); (st != nil) != (want[n.Name] != "") {
				t.Fatalf("node %s: adjusted %v, compiled %q", n.Name, st, want[n.Name])
			}
		}
	})
}

// repelled is a view in which a pod with required anti-affinity is nominated to a node.
type repelled struct{ *plugintest.View }

func (repelled) Repelled() bool { return true }
