// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func testModel(t testing.TB) *Model {
	m, err := NewModel(defaultProfile(t), rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustSet(t testing.TB, m *Model, nodes ...*v1.Node) {
	for _, n := range nodes {
		if err := m.Set(n); err != nil {
			t.Fatal(err)
		}
	}
}

func asks(milli int64, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "asked", UID: "asked",
			Labels: map[string]string{"app": "x"}},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName,
			Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)},
			}}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestSmallestChange(t *testing.T) {
	apart := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{TopologyKey: v1.LabelTopologyZone,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}},
				{TopologyKey: v1.LabelTopologyZone,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
			}}}
	}
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"requests": {asks(3000, nil), "lower the cpu request to 1500m"},
		"taint":    {asks(1800, nil), "tolerate taint t:NoSchedule"},
		"selector": {asks(100, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
			"drop nodeSelector disk"},
		"anti-affinity": {asks(100, apart), "drop anti-affinity term 2 (topology.kubernetes.io/zone)"},
		"two together": {asks(3000, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
			"lower the cpu request to 1500m, and drop nodeSelector disk"},
	} {
		t.Run(name, func(t *testing.T) {
			m := testModel(t)
			mustSet(t, m, testNode("full", 2000, "", "z1"), testNode("tainted", 2000, "a", "z1"))
			there := asks(500, nil)
			there.Name, there.UID, there.Spec.NodeName = "there", "there", "full"
			if err := m.Set(there); err != nil {
				t.Fatal(err)
			}
			w, err := m.Why(c.pod, 0)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, change := range w.Changes {
				said = append(said, change.What)
			}
			if w.Fits != 0 || !strings.Contains("|"+strings.Join(said, "|")+"|", "|"+c.want+"|") {
				t.Errorf("fits %d nodes; changes %q, want %q among them", w.Fits, said, c.want)
			}
		})
	}
}

func TestWhyHere(t *testing.T) {
	m := testModel(t)
	mustSet(t, m, testNode("a", 2000, "", "z1"), testNode("b", 1000, "", "z1"))
	p := asks(500, nil)
	p.Spec.NodeName = "a"
	if err := m.Set(p); err != nil {
		t.Fatal(err)
	}
	w, err := m.Why(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	if w.Node != "a" || w.Fits != 2 || w.Nodes[0].Node != "a" || len(w.Nodes[0].Scores) == 0 ||
		w.Nodes[0].Total <= w.Nodes[1].Total {
		t.Errorf("%+v", w)
	}
	if n := m.view.NodeByName("a"); n.Requested.MilliCPU != 500 {
		t.Errorf("the node counts %dm after the question", n.Requested.MilliCPU)
	}
}

func BenchmarkWhy(b *testing.B) {
	m := testModel(b)
	for i := range 5000 {
		mustSet(b, m, testNode(fmt.Sprint("n", i), 2000, "", fmt.Sprint("z", i%3)))
		p := asks(1500, nil)
		p.Name, p.UID, p.Spec.NodeName = fmt.Sprint("p", i), types.UID(fmt.Sprint(i)), fmt.Sprint("n", i)
		if err := m.Set(p); err != nil {
			b.Fatal(err)
		}
	}
	pod := asks(1000, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
	for b.Loop() {
		if _, err := m.Why(pod, 20); err != nil {
			b.Fatal(err)
		}
	}
}
