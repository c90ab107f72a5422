// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainttoleration_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
	"keelson.dev/keelson/pkg/scheduler/plugins/tainttoleration"
)

func tainted(taints ...v1.Taint) func(*v1.Node) {
	return func(n *v1.Node) { n.Spec.Taints = taints }
}

func TestFilter(t *testing.T) {
	gpu := v1.Taint{Key: "gpu", Value: "a100", Effect: v1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		taint       v1.Taint
		tolerations []v1.Toleration
		rejected    bool
	}{
		"no toleration": {gpu, nil, true},
		"equal": {gpu,
			[]v1.Toleration{{Key: "gpu", Value: "a100", Effect: v1.TaintEffectNoSchedule}}, false},
		"other value":        {gpu, []v1.Toleration{{Key: "gpu", Value: "h100"}}, true},
		"exists":             {gpu, []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists}}, false},
		"exists for any key": {gpu, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false},
		"other effect": {gpu,
			[]v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}, true},
		"NoExecute":                {v1.Taint{Key: "k", Effect: v1.TaintEffectNoExecute}, nil, true},
		"PreferNoSchedule is soft": {v1.Taint{Key: "k", Effect: v1.TaintEffectPreferNoSchedule}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugintest.NewView([]*v1.Node{plugintest.Node("n", tainted(tc.taint))})
			pod := plugintest.Pod("p", func(p *v1.Pod) { p.Spec.Tolerations = tc.tolerations })
			got := view.Reject(tainttoleration.New(), pod)["n"]
			if want := "[node(s) had untolerated taint(s)]"; tc.rejected && got != want || !tc.rejected && got != "" {
				t.Errorf("got %q, rejected should be %v", got, tc.rejected)
			}
		})
	}
}

func TestScore(t *testing.T) {
	soft := func(key string) v1.Taint { return v1.Taint{Key: key, Effect: v1.TaintEffectPreferNoSchedule} }
	view := plugintest.NewView([]*v1.Node{
		plugintest.Node("none"), plugintest.Node("one", tainted(soft("a"))), plugintest.Node("two",
			tainted(soft("a"), soft("b"))),
		plugintest.Node("hard", tainted(v1.Taint{Key: "a", Effect: v1.TaintEffectNoSchedule})),
	})
	for name, tc := range map[string]struct {
		tolerations []v1.Toleration
		want        map[string]int64
	}{
		"none": {nil, map[string]int64{"none": 100, "one": 50, "two": 0, "hard": 100}},
		"one of b": {[]v1.Toleration{{Key: "b", Operator: v1.TolerationOpExists}},
			map[string]int64{"none": 100, "one": 0, "two": 0, "hard": 100}},
		"for another effect": {
			[]v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}},
			map[string]int64{"none": 100, "one": 50, "two": 0, "hard": 100},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := plugintest.Pod("p", func(p *v1.Pod) { p.Spec.Tolerations = tc.tolerations })
			if diff := cmp.Diff(tc.want, view.Score(tainttoleration.New(), pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
