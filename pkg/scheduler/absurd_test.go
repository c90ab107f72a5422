// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestOddPods checks that pods and nodes with unusual values get a result, cause no panic, and no
// longer count after they are removed.
func TestOddPods(t *testing.T) {
	term := func(key string, s *metav1.LabelSelector) []v1.PodAffinityTerm {
		return []v1.PodAffinityTerm{{TopologyKey: key, LabelSelector: s}}
	}
	self := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	for name, change := range map[string]func(*v1.Pod){
		"affinity and anti-affinity to the same pods": func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{
				PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(v1.LabelTopologyZone, self)},
				PodAntiAffinity: &v1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: term(v1.LabelTopologyZone, self)},
			}
		},
		"unknown topology keys": func(p *v1.Pod) {
			for i := range 100 {
				p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
					MaxSkew: 1, TopologyKey: fmt.Sprint("no/", i), WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: self,
				})
			}
		},
		"selector that does not parse": func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{
				PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term("zone",
					&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Nonsense"}}})}}
		},
		"negative skew and domains": func(p *v1.Pod) {
			minus := int32(-5)
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: -1, MinDomains: &minus, TopologyKey: v1.LabelTopologyZone,
				WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: self,
			}}
		},
		"more than any node has": func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("9E"),
				v1.ResourceMemory: resource.MustParse("8E")}
		},
		"CPU request above 64 bits": func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10P")}
		},
		"memory request above 64 bits": func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16E")}
		},
		"device request above 64 bits": func(p *v1.Pod) {
			huge := v1.ResourceList{"example.com/device": resource.MustParse("16E")}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: huge, Limits: huge}
		},
		"contradictory node selector and affinity": func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "a"}
			p.Spec.Affinity = &v1.Affinity{
				NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{
						{MatchExpressions: []v1.NodeSelectorRequirement{
							{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpNotIn, Values: []string{"a"}}}}},
				}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := testModel(t)
			zero := testNode("zero", 0, "", "z1")
			zero.Status.Allocatable[v1.ResourceMemory] = resource.MustParse("0")
			minus := testNode("minus", -1000, "", "z2")
			minus.Status.Allocatable[v1.ResourcePods] = resource.MustParse("-3")
			many := testNode("many", 1000, "", "z3")
			for i := range 10_000 {
				many.Labels[fmt.Sprint("l", i)] = "v"
			}
			mustSet(t, m, zero, minus, many)
			there := asks(100, nil)
			there.UID, there.Spec.NodeName = "there", "many"
			if err := m.Set(there); err != nil {
				t.Fatal(err)
			}
			if node, err := m.Place(asks(100, change)); !errors.Is(err, ErrNoNode) {
				t.Errorf("placed on %q, error %v", node, err)
			}
			if w, err := m.Why(asks(100, change), 0); err != nil || w.Fits != 0 || len(w.Reasons) == 0 {
				t.Errorf("why: %+v, error %v", w, err)
			}
			if used := m.view.NodeByName("many").Requested.MilliCPU; used != 100 {
				t.Errorf("the node counts %dm, want 100m", used)
			}
		})
	}
}

// TestSumOfHugeRequests checks that a node has no room left if its pods request more than fits into
// 64 bits, however many such pods there are.
func TestSumOfHugeRequests(t *testing.T) {
	m := testModel(t)
	mustSet(t, m, testNode("n", 1000, "", "z"))
	for i := range 3 {
		p := asks(0, func(p *v1.Pod) {
			p.Spec.NodeName = "n"
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse("9223372036854775807"),
				v1.ResourceMemory: resource.MustParse("9223372036854775807"),
			}
		})
		p.Name, p.UID = fmt.Sprint(i), types.UID(fmt.Sprint(i))
		if err := m.Set(p); err != nil {
			t.Fatal(err)
		}
		if node, err := m.Place(asks(100, nil)); !errors.Is(err, ErrNoNode) {
			t.Errorf("beside %d pods: placed on %q, error %v", i+1, node, err)
		}
	}
}

// TestTenThousandKinds checks that the caches stay limited when all pods have different specs.
func TestTenThousandKinds(t *testing.T) {
	m := testModel(t)
	for i := range 100 {
		mustSet(t, m, testNode(fmt.Sprint("n", i), 64_000, "", fmt.Sprint("z", i%3)))
	}
	for i := range 10_000 {
		p := asks(int64(i%50), func(p *v1.Pod) {
			p.Name, p.UID = fmt.Sprint(i), types.UID(fmt.Sprint(i))
			p.Labels = map[string]string{"own": fmt.Sprint(i)}
			p.Spec.NodeSelector = nil
			p.Spec.Tolerations = []v1.Toleration{{Key: fmt.Sprint(i), Operator: v1.TolerationOpExists}}
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
			}}
		})
		if _, err := m.Place(p); err != nil && !errors.Is(err, ErrNoNode) {
			t.Fatal(err)
		}
		m.RemovePod(p.UID)
	}
	if n := len(m.evaluator.classes.byKey); n > maxVerdicts/100 {
		t.Errorf("%d classes are kept", n)
	}
	if n := len(m.view.keeper.byKey); n > maxKept/100+1 {
		t.Errorf("%d tallies are kept", n)
	}
}
