// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/scheduling"
)

// groupsOf returns the gangs of a scheduler that knows the given PodGroups.
func groupsOf(t interface{ Fatal(args ...any) }, all ...*schedulingv1beta1.PodGroup) groups {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, g := range all {
		if err := indexer.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	return groups{podGroups: schedulinglisters.NewPodGroupLister(indexer)}
}

// podGroup returns a PodGroup with the policy gang or, if minCount is 0, basic.
func podGroup(name string, minCount int32) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 2}}
	if minCount > 0 {
		g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	} else {
		g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	}
	return g
}

// TestNeed checks which gang a pod is in, and how many pods must get nodes at once.
func TestNeed(t *testing.T) {
	known := groupsOf(t, podGroup("gang", 3), podGroup("basic", 0))
	annotated := func(size string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
		p.Annotations = map[string]string{v1alpha1.AnnGang: "a", v1alpha1.AnnGangSize: size}
		p.Spec.SchedulerName = "s"
		return p
	}
	in := func(group string) *v1.Pod {
		p := annotated("5")
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
		return p
	}
	for name, c := range map[string]struct {
		groups  groups
		pod     *v1.Pod
		placed  int
		key     string
		need    int
		unknown bool
	}{
		"no gang":                   {groups: known, pod: &v1.Pod{}},
		"annotations":               {groups: known, pod: annotated("3"), key: "default/s/a", need: 3},
		"annotations, begun":        {groups: known, pod: annotated("3"), placed: 1, key: "default/s/a"},
		"annotations, invalid":      {groups: known, pod: annotated("x"), key: "default/s/a"},
		"PodGroup":                  {groups: known, pod: in("gang"), key: "podgroup:default/gang", need: 3},
		"PodGroup, begun":           {groups: known, pod: in("gang"), placed: 1, key: "podgroup:default/gang", need: 2},
		"PodGroup, complete":        {groups: known, pod: in("gang"), placed: 4, key: "podgroup:default/gang"},
		"basic PodGroup":            {groups: known, pod: in("basic"), key: "podgroup:default/basic"},
		"PodGroup that is missing":  {groups: known, pod: in("none"), key: "podgroup:default/none", unknown: true},
		"PodGroup, without feature": {pod: in("gang"), key: "default/s/a", need: 5},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.groups.of(c.pod, func(string) int { return c.placed })
			if g.key != c.key || g.need() != c.need || g.unknown != c.unknown {
				t.Errorf("gang %+v needs %d pods, want %+v", g, g.need(), c)
			}
		})
	}
}

// TestShortage checks what a PodGroup says if it is not scheduled.
func TestShortage(t *testing.T) {
	const unmet = "minCount (%d) cannot be satisfied: %d scheduled, %d remaining"
	for name, c := range map[string]struct {
		gang       gang
		fits, left int
		want       string
	}{
		"no PodGroup":      {gang: gang{size: 3}},
		"may fit":          {gang: gang{size: 3, group: podGroup("g", 3)}, fits: 1, left: 2},
		"fits":             {gang: gang{size: 3, placed: 2, group: podGroup("g", 3)}, fits: 1},
		"does not fit":     {gang{size: 3, group: podGroup("g", 3)}, 1, 1, fmt.Sprintf(unmet, 3, 1, 1)},
		"some are placed":  {gang{size: 4, placed: 2, group: podGroup("g", 4)}, 1, 0, fmt.Sprintf(unmet, 4, 3, 0)},
		"basic":            {gang{group: podGroup("g", 0)}, 0, 0, fmt.Sprintf(unmet, 1, 0, 0)},
		"basic, has a pod": {gang: gang{placed: 1, group: podGroup("g", 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.gang.shortage(c.fits, c.left); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestGroupCheck checks which pods contradict their PodGroup or each other.
func TestGroupCheck(t *testing.T) {
	of := func(scheduler string, priority int32, policy v1.PreemptionPolicy) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{SchedulerName: scheduler, Priority: &priority, PreemptionPolicy: &policy}}
	}
	plain := of("s", 7, v1.PreemptLowerPriority)
	const all = "all pods in a single pod group should have the same "
	for name, c := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"alike":       {pods: []*v1.Pod{plain, plain}},
		"never":       {pods: []*v1.Pod{of("s", 7, v1.PreemptNever), of("s", 7, v1.PreemptNever)}},
		"no policy":   {pods: []*v1.Pod{plain, {Spec: v1.PodSpec{SchedulerName: "s", Priority: plain.Spec.Priority}}}},
		"no priority": {[]*v1.Pod{{}}, all + "priority as the pod group's priority, got 0 and 7"},
		"other scheduler": {[]*v1.Pod{plain, of("t", 7, v1.PreemptNever)},
			all + `.spec.schedulerName set, got: "t" and "s"`},
		"other priority": {[]*v1.Pod{plain, of("s", 8, v1.PreemptNever)},
			all + "priority as the pod group's priority, got 8 and 7"},
		"other preemption policy": {[]*v1.Pod{plain, of("s", 7, v1.PreemptNever)},
			all + "preemption policy, got Never and PreemptLowerPriority"},
	} {
		t.Run(name, func(t *testing.T) {
			g := gang{group: podGroup("g", 2)}
			g.group.Spec.Priority = plain.Spec.Priority
			got := ""
			if err := g.check(c.pods); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestConditionChanged checks that the condition of a PodGroup is written only if it changes, and stays true.
func TestConditionChanged(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)) }
	condition := func(status metav1.ConditionStatus, message string, minute int) *metav1.Condition {
		return &metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status, Reason: "R",
			Message: message, LastTransitionTime: at(minute)}
	}
	for name, c := range map[string]struct {
		old, report, want *metav1.Condition
	}{
		"first":            {nil, condition("False", "m", 0), condition("False", "m", 5)},
		"same":             {condition("False", "m", 1), condition("False", "m", 0), nil},
		"other message":    {condition("False", "m", 1), condition("False", "n", 0), condition("False", "n", 1)},
		"becomes true":     {condition("False", "m", 1), condition("True", "", 0), condition("True", "", 5)},
		"stays true":       {condition("True", "", 1), condition("False", "m", 0), nil},
		"true, same again": {condition("True", "", 1), condition("True", "", 0), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := podGroup("g", 1)
			if c.old != nil {
				g.Status.Conditions = []metav1.Condition{*c.old}
			}
			got := conditionChanged(g, c.report, at(5))
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestUnits checks which pods are evicted together, and which units are the more important ones.
func TestUnits(t *testing.T) {
	whole, single := podGroup("whole", 1), podGroup("single", 1)
	whole.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	single.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
	high := int32(9)
	urgent := podGroup("urgent", 1)
	urgent.Spec.Priority = &high
	v := emptyView(t)
	v.gangs = newGangs(groupsOf(t, whole, single, urgent))
	v.SetNode(testNode("a", 9000, "", "z"))
	v.SetNode(testNode("b", 9000, "", "z"))
	for i, c := range []struct{ name, node, group string }{
		{"w0", "a", "whole"}, {"w1", "a", "whole"}, {"w2", "b", "whole"}, {"s0", "a", "single"}, {"s1", "b", "single"},
		{"early", "a", ""}, {"late", "a", "missing"}, {"u", "a", "urgent"},
	} {
		p := gangPod(c.name, 1, 0)
		p.Namespace, p.Spec.NodeName = "default", c.node
		p.Status.StartTime = &metav1.Time{Time: time.Unix(int64(i), 0)}
		if c.group != "" {
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &c.group}
		}
		v.SetPod(p)
		v.gangs.set(p, true)
	}
	units := v.unitsBelow(v.NodeByName("a"), 5)
	slices.SortFunc(units, compareUnits)
	var got [][]string
	for _, u := range units {
		var names []string
		for m := range u.members() {
			names = append(names, m.pod.Name+" on "+m.node.Name)
		}
		slices.Sort(names)
		got = append(got, names)
	}
	want := [][]string{{"w0 on a", "w1 on a", "w2 on b"}, {"s0 on a"}, {"early on a"}, {"late on a"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("units %q, want %q", got, want)
	}
	if n := v.NodeByName("a"); !v.hasGroups(n) {
		t.Error("node a has pods of PodGroups")
	}
}

// TestUnitsAndBudgets checks that each pod of a unit counts in the disruption budgets.
func TestUnitsAndBudgets(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	budget.Status.DisruptionsAllowed = 2
	labelled := func(name string) *scheduling.Pod { return &scheduling.Pod{Pod: gangPod(name, 1, 0)} } // app: x
	units := []unit{
		{member: member{pod: labelled("a")}},
		{member{pod: labelled("b")}, &groupUnit{others: []member{{pod: labelled("c")}, {pod: labelled("d")}}}},
	}
	violating, others := splitByBudgets(units, compileBudgets([]*policyv1.PodDisruptionBudget{budget}))
	if len(violating) != 1 || violating[0].pod.Name != "b" || violating[0].violations() != 2 || len(others) != 1 {
		t.Errorf("%d units violate budgets, want b with two violations: %+v", len(violating), violating)
	}
}
