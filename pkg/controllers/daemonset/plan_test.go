// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// layOut parses nodes with their pods from a text like "n1 a:ready:old b:young:new; !n2; -n3". A
// node with the prefix ! is not eligible for the DaemonSet. On a node with the prefix ~, existing
// pods may stay but no pod is created. A node with the prefix - does not exist. Each pod is one
// second younger than the pod before.
func layOut(text string) []place {
	var out []place
	age := time.Hour
	for _, node := range strings.Split(text, ";") {
		words := strings.Fields(node)
		if len(words) == 0 {
			continue
		}
		at := place{name: strings.TrimLeft(words[0], "!~-"), exists: true, verdict: verdict{true, true}}
		switch words[0][0] {
		case '!':
			at.verdict = verdict{}
		case '~':
			at.run = false
		case '-':
			at.exists, at.verdict = false, verdict{}
		}
		for _, word := range words[1:] {
			part := strings.Split(word, ":")
			age -= time.Second
			at.pods = append(at.pods, podOf(part[0], part[1], part[2], at.name, noon.Add(-age)))
		}
		out = append(out, at)
	}
	return out
}

func podOf(name, how, hash, node string, made time.Time) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
			Labels: map[string]string{hashLabel: hash}, CreationTimestamp: metav1.NewTime(made)},
		Spec: v1.PodSpec{NodeName: node},
		Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{
			Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(made),
		}}},
	}
	switch how {
	case "waiting":
		pod.Spec.NodeName = ""
		pod.Status = v1.PodStatus{Phase: v1.PodPending}
	case "running":
		pod.Status.Conditions = nil
	case "young":
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-time.Second))
	case "going":
		pod.DeletionTimestamp = &metav1.Time{Time: noon}
	case "failed":
		pod.Status = v1.PodStatus{Phase: v1.PodFailed}
	case "succeeded":
		pod.Status = v1.PodStatus{Phase: v1.PodSucceeded}
	}
	return pod
}

func show(p plan) string {
	var out []string
	for _, node := range p.create {
		out = append(out, "+"+node)
	}
	for _, pod := range p.delete {
		out = append(out, "-"+pod.Name)
	}
	slices.Sort(out)
	if p.again > 0 {
		out = append(out, "again in "+p.again.String())
	}
	return strings.Join(out, " ")
}

// setOf returns a DaemonSet with an update strategy like "surge=1" or "unavailable=50%". For "" the
// strategy is OnDelete.
func setOf(strategy string) *appsv1.DaemonSet {
	set := sample()
	set.Spec.MinReadySeconds = 10
	if strategy == "" {
		set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		return set
	}
	set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(0)),
		}}
	what, n, _ := strings.Cut(strategy, "=")
	if what == "surge" {
		set.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.Parse(n))
	} else {
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(n))
	}
	return set
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		strategy, places string
		held             time.Duration
		want             string
	}{
		"a pod on every node":          {"unavailable=1", "n1; n2; !n3; ~n4", 0, "+n1 +n2"},
		"one exists":                   {"unavailable=1", "n1 a:running:new; n2", 0, "+n2"},
		"waits for a terminating pod":  {"unavailable=1", "n1 a:going:new", 0, ""},
		"ineligible node":              {"unavailable=1", "!n1 a:ready:new b:going:new", 0, "-a"},
		"stays where it may":           {"unavailable=1", "~n1 a:ready:new", 0, ""},
		"the first of several stays":   {"unavailable=1", "n1 a:ready:new b:ready:new c:waiting:new", 0, "-b -c"},
		"failed pod is deleted":        {"unavailable=1", "n1 a:failed:new", 0, "-a"},
		"failed pod is deleted later":  {"unavailable=1", "n1 a:failed:new", time.Minute, "again in 1m0s"},
		"one of two failed pods":       {"unavailable=1", "n1 a:failed:new b:failed:new", 0, "-a again in 1s"},
		"succeeded pod is deleted":     {"unavailable=1", "n1 a:succeeded:new", time.Minute, "-a"},
		"failed pod beside a good one": {"unavailable=1", "n1 a:failed:new b:ready:new", 0, "-a"},
		"waits for a missing node":     {"unavailable=1", "-n1 a:waiting:new b:ready:new", 0, "-a"},

		"on delete nothing is updated": {"", "n1 a:ready:old; n2 b:running:old", 0, ""},
		"one may be unavailable":       {"unavailable=1", "n1 a:ready:old; n2 b:ready:old", 0, "-a"},
		"one is":                       {"unavailable=1", "n1 a:ready:new; n2 b:young:new; n3 c:ready:old", 0, ""},
		"terminating pod counts":       {"unavailable=1", "n1 a:going:old; n2 b:ready:old", 0, ""},
		"unavailable pods are always deleted": {"unavailable=1",
			"n1 a:running:old; n2 b:running:old; n3 c:ready:old", 0, "-a -b"},
		"percentage rounds up": {"unavailable=50%",
			"n1 a:ready:old; n2 b:ready:old; n3 c:ready:old", 0, "-a -b"},
		"zero counts as one":     {"unavailable=0", "n1 a:ready:old; n2 b:ready:old", 0, "-a"},
		"missing pods first":     {"unavailable=3", "n1 a:ready:old; n2", 0, "+n2"},
		"all are updated":        {"unavailable=1", "n1 a:ready:new; n2 b:ready:new", 0, ""},
		"by template generation": {"unavailable=1", "n1 a:ready:generation; n2 b:ready:new", 0, ""},

		"a new one beside the old one":   {"surge=1", "n1 a:ready:old; n2 b:ready:old", 0, "+n1"},
		"one at a time":                  {"surge=1", "n1 a:ready:old x:young:new; n2 b:ready:old", 0, ""},
		"old pod is deleted":             {"surge=1", "n1 a:ready:old x:ready:new; n2 b:ready:old", 0, "-a"},
		"unavailable old pod is deleted": {"surge=1", "n1 a:running:old x:young:new", 0, "-a"},
		"beside unavailable pods": {"surge=1",
			"n1 a:running:old; n2 b:running:old; n3 c:ready:old", 0, "+n1 +n2 +n3"},
		"beside a terminating pod":             {"surge=1", "n1 a:going:old", 0, "+n1"},
		"never three":                          {"surge=1", "n1 a:ready:old b:ready:old x:young:new y:young:new", 0, "-b -y"},
		"misplaced, and needed":                {"surge=1", "~n1 a:ready:old; n2 x:young:new", 0, ""},
		"misplaced, and enough others":         {"surge=1", "~n1 a:ready:old; n2 x:ready:new", 0, "-a"},
		"misplaced and unavailable":            {"surge=1", "~n1 a:running:old; n2 x:young:new", 0, "-a"},
		"surge percentage rounds up":           {"surge=34%", "n1 a:ready:old; n2 b:ready:old; n3 c:ready:old", 0, "+n1 +n2"},
		"nothing to update where it may surge": {"surge=1", "n1 a:ready:new; n2 b:young:new", 0, ""},
		"on a missing node, not needed":        {"surge=1", "-n1 a:ready:old; n2 b:ready:new", 0, "-a"},
	} {
		t.Run(name, func(t *testing.T) {
			set := setOf(tc.strategy)
			set.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "7"}
			s := &state{set: set, hash: "new", places: layOut(tc.places), now: noon,
				held: func(string) time.Duration { return tc.held }}
			for _, at := range s.places {
				for _, pod := range at.pods {
					if pod.Labels[hashLabel] == "generation" {
						pod.Labels[generationLabel] = "7"
					}
				}
			}
			p, err := decide(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(p); got != tc.want {
				t.Errorf("plan: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		places string
		acted  bool
		want   string
	}{
		"none": {"", true, "desired 0 current 0 ready 0 available 0 unavailable 0 updated 0 misscheduled 0 seen 2"},
		"counted": {"n1 a:ready:new; n2 b:running:old; n3; !n4 c:ready:old", true,
			"desired 3 current 2 ready 1 available 1 unavailable 2 updated 1 misscheduled 1 seen 2"},
		"too early": {"n1 a:young:new", true,
			"desired 1 current 1 ready 1 available 0 unavailable 1 updated 1 misscheduled 0 seen 2; again in 9s"},
		"the first": {"n1 a:ready:old b:young:new", true,
			"desired 1 current 1 ready 1 available 1 unavailable 0 updated 0 misscheduled 0 seen 2"},
		"not acted on": {"n1 a:ready:new", false,
			"desired 1 current 1 ready 1 available 1 unavailable 0 updated 1 misscheduled 0 seen 1"},
		"no node": {"-n1 a:ready:new", true,
			"desired 0 current 0 ready 0 available 0 unavailable 0 updated 0 misscheduled 0 seen 2"},
	} {
		t.Run(name, func(t *testing.T) {
			set := setOf("")
			set.Generation, set.Status.ObservedGeneration, set.Status.NumberReady = 2, 1, 9
			s, again := status(&state{set: set, hash: "new", places: layOut(tc.places), now: noon}, tc.acted)
			got := fmt.Sprintf("desired %d current %d ready %d available %d unavailable %d updated %d "+
				"misscheduled %d seen %d", s.DesiredNumberScheduled, s.CurrentNumberScheduled,
				s.NumberReady, s.NumberAvailable, s.NumberUnavailable, s.UpdatedNumberScheduled,
				s.NumberMisscheduled, s.ObservedGeneration)
			if again > 0 {
				got += "; again in " + again.String()
			}
			if got != tc.want {
				t.Errorf("status: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLay(t *testing.T) {
	nodes := []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	waiting := newPod(sample(), "new", "n1")
	waiting.Name = "w"
	lost := podOf("l", "waiting", "new", "", noon)
	over := podOf("o", "failed", "new", "n2", noon)
	over.DeletionTimestamp = &metav1.Time{Time: noon}
	there := podOf("t", "ready", "new", "n1", noon)
	first := podOf("f", "ready", "new", "n1", noon.Add(-time.Second))
	var out []string
	for _, at := range assignPods(sample(), nodes,
		[]*v1.Pod{waiting, lost, over, there, first, podOf("x", "ready", "new", "n3", noon)}) {
		text := fmt.Sprint(at.name, " ", at.exists, " ", at.run)
		for _, pod := range at.pods {
			text += " " + pod.Name
		}
		out = append(out, text)
	}
	if got, want := strings.Join(out, "; "), "n1 true true f t w; n2 true true; n3 false false x"; got != want {
		t.Errorf("laid out: %q, want %q", got, want)
	}
}
