// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// selectorCases has label selectors that are easily confused: a missing selector matches nothing,
// and an empty selector matches everything.
var selectorCases = map[string]struct {
	selector *metav1.LabelSelector
	labels   map[string]string
	matches  bool
}{
	"absent":            {nil, map[string]string{"app": "a"}, false},
	"absent, no labels": {nil, nil, false},
	"empty":             {&metav1.LabelSelector{}, map[string]string{"app": "a"}, true},
	"empty, no labels":  {&metav1.LabelSelector{}, nil, true},
	"label": {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		map[string]string{"app": "a"}, true},
	"other label": {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "b"}},
		map[string]string{"app": "a"}, false},
	"negation, no labels": {
		&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}, nil, true},
}

// TestBudgetSelectors checks that preemption counts evictions against exactly the disruption
// budgets whose selector matches the pod. See kubernetes/kubernetes#141785.
func TestBudgetSelectors(t *testing.T) {
	for name, tc := range selectorCases {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}}
			b.Spec.Selector = tc.selector
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: tc.labels}}
			if overdrawn := charge(compileBudgets([]*policyv1.PodDisruptionBudget{b}), pod); overdrawn != tc.matches {
				t.Errorf("the budget is charged: %v, want %v", overdrawn, tc.matches)
			}
			pod.Namespace = "other"
			if charge(compileBudgets([]*policyv1.PodDisruptionBudget{b}), pod) {
				t.Error("a budget of another namespace is charged")
			}
		})
	}
}

// TestSpreadSelectors checks that a spread constraint counts exactly the pods that its selector
// matches. Only zone z1 has a node with free resources, and two pods run there. If the selector
// matches them, another pod in z1 would exceed maxSkew 1. See kubernetes/kubernetes#141339.
func TestSpreadSelectors(t *testing.T) {
	for name, tc := range selectorCases {
		t.Run(name, func(t *testing.T) {
			m := testModel(t)
			mustSet(t, m, testNode("full", 4000, "", "z1"), testNode("bare", 0, "", "z2"))
			for _, uid := range []string{"one", "two"} {
				there := asks(100, func(p *v1.Pod) {
					p.Name, p.UID, p.Labels, p.Spec.NodeName = uid, types.UID(uid), tc.labels, "full"
				})
				if err := m.Set(there); err != nil {
					t.Fatal(err)
				}
			}
			_, err := m.Place(asks(100, func(p *v1.Pod) {
				p.Labels = map[string]string{"app": "c"}
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: tc.selector,
				}}
			}))
			if refused := errors.Is(err, ErrNoNode); refused != tc.matches {
				t.Errorf("the pod is rejected: %v (%v), want %v", refused, err, tc.matches)
			}
		})
	}
}
