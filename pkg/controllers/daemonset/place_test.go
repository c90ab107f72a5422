// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestJudge(t *testing.T) {
	taint := func(key string, effect v1.TaintEffect) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: effect}) }
	}
	label := func(n *v1.Node) { n.Labels = map[string]string{"disk": "ssd"} }
	affinity := func(s *v1.PodSpec) {
		s.Affinity = &v1.Affinity{
			NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{
					{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpIn,
						Values: []string{"ssd"}}}}},
			}}}
	}
	tolerate := func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}} }
	unchanged := func(*v1.PodSpec) {}
	plain := func(*v1.Node) {}
	yes, stays, no := verdict{true, true}, verdict{false, true}, verdict{}
	for name, tc := range map[string]struct {
		spec func(*v1.PodSpec)
		node func(*v1.Node)
		want verdict
	}{
		"any": {unchanged, plain, yes},
		"selected": {
			func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }, label, yes},
		"not selected": {
			func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }, plain, no},
		"required":             {affinity, label, yes},
		"not as required":      {affinity, plain, no},
		"named":                {func(s *v1.PodSpec) { s.NodeName = "n" }, plain, yes},
		"another one named":    {func(s *v1.PodSpec) { s.NodeName = "m" }, plain, no},
		"tainted":              {unchanged, taint("k", v1.TaintEffectNoSchedule), stays},
		"tainted, better not":  {unchanged, taint("k", v1.TaintEffectPreferNoSchedule), yes},
		"tainted, off with it": {unchanged, taint("k", v1.TaintEffectNoExecute), no},
		"tolerated":            {tolerate, taint("k", v1.TaintEffectNoExecute), yes},
		"not ready yet":        {unchanged, taint(v1.TaintNodeNotReady, v1.TaintEffectNoSchedule), stays},
		"not ready any more":   {unchanged, taint(v1.TaintNodeNotReady, v1.TaintEffectNoExecute), yes},
		"cordoned":             {unchanged, taint(v1.TaintNodeUnschedulable, v1.TaintEffectNoSchedule), yes},
		"without network":      {unchanged, taint(v1.TaintNodeNetworkUnavailable, v1.TaintEffectNoSchedule), stays},
		"without network, and no need": {func(s *v1.PodSpec) { s.HostNetwork = true },
			taint(v1.TaintNodeNetworkUnavailable, v1.TaintEffectNoSchedule), yes},
	} {
		t.Run(name, func(t *testing.T) {
			set, node := sample(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			tc.spec(&set.Spec.Template.Spec)
			tc.node(node)
			if got := newEligibility(set).evaluate(node); got != tc.want {
				t.Errorf("verdict: %+v, want %+v", got, tc.want)
			}
		})
	}
	if got := newEligibility(sample()).evaluate(nil); got != no {
		t.Errorf("no node: %+v", got)
	}
}

func TestNewPod(t *testing.T) {
	set := sample()
	set.Name = "d"
	set.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "3"}
	soon := int64(5)
	set.Spec.Template.Spec.Tolerations = []v1.Toleration{
		{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute,
			TolerationSeconds: &soon}, {Key: "k"},
	}
	set.Spec.Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1}},
		RequiredDuringSchedulingIgnoredDuringExecution:  &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{}, {}}},
	}}
	pod := newPod(set, "h", "n")
	if target(pod) != "n" || pod.Spec.NodeName != "" || pod.GenerateName != "d-" {
		t.Errorf("pod for %q: %+v", target(pod), pod)
	}
	a := pod.Spec.Affinity.NodeAffinity
	if len(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 1 ||
		len(a.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("affinity: %+v", a)
	}
	if l := pod.Labels; l["app"] != "d" || l[hashLabel] != "h" || l[generationLabel] != "3" {
		t.Errorf("labels: %v", l)
	}
	if ts := pod.Spec.Tolerations; len(ts) != 7 || ts[0].TolerationSeconds != nil || ts[1].Key != "k" {
		t.Errorf("tolerations: %+v", ts)
	}
	if len(set.Spec.Template.Spec.Tolerations) != 2 ||
		len(
			set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 2 {
		t.Error("the template was changed")
	}
	pod.Spec.NodeName = "m"
	if target(pod) != "m" || target(&v1.Pod{}) != "" {
		t.Error("target")
	}
}
