// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaffinity_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/nodeaffinity"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/scheduling"
)

func in(key string, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: key, Operator: v1.NodeSelectorOpIn, Values: values},
	}}
}

func required(terms ...v1.NodeSelectorTerm) *v1.NodeAffinity {
	return &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}
}

func with(a *v1.NodeAffinity) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Affinity = &v1.Affinity{NodeAffinity: a} }
}

func selecting(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func plugin(t *testing.T, added *v1.NodeAffinity) scheduling.Plugin {
	t.Helper()
	p, err := nodeaffinity.New(added)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFilter(t *testing.T) {
	const (
		mismatch = "[node(s) didn't match Pod's node affinity/selector]"
		enforced = "[node(s) didn't match scheduler-enforced node affinity]"
		zone     = v1.LabelTopologyZone
	)
	nodes := []*v1.Node{plugintest.Node("a", plugintest.InZone("x")), plugintest.Node("b", plugintest.InZone("y")),
		plugintest.Node("c")}
	for name, tc := range map[string]struct {
		added *v1.NodeAffinity
		pod   *v1.Pod
		want  map[string]string
	}{
		"nothing asked": {nil, plugintest.Pod("p"), map[string]string{}},
		"selector": {nil, plugintest.Pod("p", selecting(zone, "x")),
			map[string]string{"b": mismatch, "c": mismatch}},
		"one term": {nil, plugintest.Pod("p", with(required(in(zone, "x", "y")))),
			map[string]string{"c": mismatch}},
		"either term": {nil, plugintest.Pod("p", with(required(in(zone, "x"), in(v1.LabelHostname, "c")))),
			map[string]string{"b": mismatch}},
		"selector and term": {
			nil, plugintest.Pod("p", selecting(zone, "x"), with(required(in(zone, "y")))),
			map[string]string{"a": mismatch, "b": mismatch, "c": mismatch},
		},
		"term by name": {
			nil, plugintest.Pod("p", with(required(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"c"}},
			}}))), map[string]string{"a": mismatch, "b": mismatch},
		},
		"no terms": {nil, plugintest.Pod("p", with(required())),
			map[string]string{"a": mismatch, "b": mismatch, "c": mismatch}},
		"added": {required(in(zone, "x")), plugintest.Pod("p"),
			map[string]string{"b": enforced, "c": enforced}},
		"added and the pod's": {required(in(zone, "x", "y")), plugintest.Pod("p", selecting(zone, "y")),
			map[string]string{"a": mismatch, "c": enforced}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plugintest.NewView(nodes).Reject(plugin(t, tc.added), tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScore(t *testing.T) {
	prefer := func(weight int32, term v1.NodeSelectorTerm) *v1.NodeAffinity {
		return &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
			{Weight: weight, Preference: term},
		}}
	}
	nodes := []*v1.Node{plugintest.Node("a", plugintest.InZone("x")), plugintest.Node("b", plugintest.InZone("y"))}
	x, y := in(v1.LabelTopologyZone, "x"), in(v1.LabelTopologyZone, "y")
	for name, tc := range map[string]struct {
		added *v1.NodeAffinity
		pod   *v1.Pod
		want  map[string]int64
	}{
		"nothing asked": {nil, plugintest.Pod("p"), nil},
		"preferred":     {nil, plugintest.Pod("p", with(prefer(3, x))), map[string]int64{"a": 100, "b": 0}},
		"added":         {prefer(3, y), plugintest.Pod("p"), map[string]int64{"a": 0, "b": 100}},
		"both":          {prefer(10, y), plugintest.Pod("p", with(prefer(5, x))), map[string]int64{"a": 50, "b": 100}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plugintest.NewView(nodes).Score(plugin(t, tc.added), tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAddedAffinityThatDoesNotParse(t *testing.T) {
	bad := required(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: "Near"}}})
	if _, err := nodeaffinity.New(bad); err == nil {
		t.Error("accepted")
	}
}
