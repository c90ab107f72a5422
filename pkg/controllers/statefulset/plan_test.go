// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

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
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// podsOf parses pods from a text like "0:ready:old 1:going:new". The parts of a word are the
// ordinal, the state and the revision.
func podsOf(set *appsv1.StatefulSet, text string) []*v1.Pod {
	var out []*v1.Pod
	for _, word := range strings.Fields(text) {
		part := strings.Split(word, ":")
		name := set.Name + "-" + part[0]
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: set.Namespace, UID: types.UID("uid-" + name),
				Labels: map[string]string{
					appsv1.StatefulSetPodNameLabel: name, appsv1.StatefulSetRevisionLabel: part[2],
				}},
			Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{
				Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute)),
			}}},
		}
		switch part[1] {
		case "pending":
			pod.Status = v1.PodStatus{Phase: v1.PodPending}
		case "running":
			pod.Status.Conditions = nil
		case "young":
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-time.Second))
		case "going":
			pod.DeletionTimestamp = &metav1.Time{Time: noon}
		case "adopted":
			delete(pod.Labels, appsv1.StatefulSetPodNameLabel)
		case "failing":
			pod.DeletionTimestamp = &metav1.Time{Time: noon}
			pod.Status = v1.PodStatus{Phase: v1.PodFailed}
		case "failed":
			pod.Status = v1.PodStatus{Phase: v1.PodFailed}
		case "succeeded":
			pod.Status = v1.PodStatus{Phase: v1.PodSucceeded}
		}
		out = append(out, pod)
	}
	return out
}

// show returns a plan as a text like "create 0:new, replace 2 | destroy 3".
func show(p plan) string {
	var phases []string
	for _, phase := range p.phases {
		var steps []string
		for _, s := range phase {
			text := fmt.Sprintf("%s %d", s.verb, ordinalOf(s.pod))
			if s.verb == create {
				text += ":" + revisionOf(s.pod)
			}
			steps = append(steps, text)
		}
		phases = append(phases, strings.Join(steps, ", "))
	}
	return strings.Join(phases, " | ")
}

func stateOf(set *appsv1.StatefulSet, text string) state {
	return state{
		set: set, pods: podsOf(set, text), now: noon, claim: func(string) *v1.PersistentVolumeClaim { return nil },
		current: revision{"old", &set.Spec.Template}, update: revision{"new", &set.Spec.Template},
	}
}

type change func(*appsv1.StatefulSet)

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}
func from(n int32) change {
	return func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
}
func minReadySeconds(n int32) change {
	return func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = n }
}
func partitioned(n int32) change {
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}
func maxUnavailable(v string) change {
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(v)) }
}
func bare(s *appsv1.StatefulSet) { // bare removes the settings of the update strategy
	s.Spec.UpdateStrategy.RollingUpdate = nil
	s.Status.CurrentReplicas = 1
}
func deleted(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{Time: noon} }

func setOf(n int32, changes ...change) *appsv1.StatefulSet {
	set := sample(n)
	set.Namespace, set.UID = "default", "uid-set"
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
		Type:          appsv1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)},
	}
	for _, c := range changes {
		c(set)
	}
	return set
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		set  *appsv1.StatefulSet
		pods string
		want string
	}{
		"first pod is created first":                {setOf(3), "", "create 0:new"},
		"waits until the pod before runs":           {setOf(3), "0:pending:new", ""},
		"waits until it is ready":                   {setOf(3), "0:running:new", ""},
		"waits until it is available":               {setOf(3, minReadySeconds(30)), "0:young:new", ""},
		"next pod":                                  {setOf(3, minReadySeconds(30)), "0:ready:new", "create 1:new"},
		"gap is filled first":                       {setOf(3), "0:ready:new 2:ready:old", "create 1:new"},
		"waits for a terminating pod":               {setOf(2), "0:going:new", ""},
		"failed pod is recreated":                   {setOf(2), "0:failed:new", "destroy 0"},
		"succeeded pod is recreated":                {setOf(2), "0:ready:new 1:succeeded:new", "destroy 1"},
		"waits for a terminating failed pod":        {setOf(2), "0:failing:new", ""},
		"nothing to do":                             {setOf(2), "0:ready:new 1:ready:new", ""},
		"last pod is deleted first":                 {setOf(1), "0:ready:new 1:ready:new 2:ready:new", "destroy 2"},
		"deletes one pod at a time":                 {setOf(1), "0:ready:new 1:ready:new 2:going:new", ""},
		"no deletion while a kept pod is unhealthy": {setOf(1), "0:running:new 1:ready:new 2:ready:new", ""},
		"unhealthy pod blocks those above it":       {setOf(1), "0:ready:new 1:running:new 2:ready:new", "destroy 2"},
		"unhealthy pod itself is deleted":           {setOf(1), "0:ready:new 1:ready:new 2:running:new", "destroy 2"},
		"waits for another unhealthy pod":           {setOf(1), "0:ready:new 1:running:new 2:running:new", ""},
		"scale to zero":                             {setOf(0), "0:ready:new", "destroy 0"},
		"other start ordinal":                       {setOf(2, from(3)), "3:ready:new", "create 4:new"},
		"pods below the start are deleted last":     {setOf(1, from(3)), "0:ready:new 3:ready:new 4:ready:new", "destroy 4"},

		"parallel creation": {setOf(3, parallel), "1:pending:new", "create 0:new, create 2:new"},
		"parallel deletion": {setOf(0, parallel), "0:pending:new 1:going:new 2:ready:new",
			"destroy 2, destroy 0"},
		"failed pod blocks no other": {setOf(3, parallel), "0:failed:new 1:ready:new", "destroy 0, create 2:new"},
		"scale and update together": {setOf(2, parallel), "0:ready:old 1:ready:old 2:ready:old",
			"destroy 2 | replace 1"},
		"update waits for created pods":   {setOf(3, parallel), "0:ready:old 1:ready:old", "create 2:new"},
		"failed pod is not deleted twice": {setOf(2, parallel), "0:ready:old 1:failed:old", "destroy 1"},
		"created pod is not deleted":      {setOf(2, parallel, bare), "1:ready:new", "create 0:old"},
		"old pod that is unavailable":     {setOf(3, parallel), "0:pending:old 1:ready:old 2:ready:new", "replace 1"},

		"highest pod is updated first":            {setOf(3), "0:ready:old 1:ready:old 2:ready:old", "replace 2"},
		"waits for the updated pod":               {setOf(3), "0:ready:old 1:ready:old 2:pending:new", ""},
		"recreated at the new revision":           {setOf(3), "0:ready:old 1:ready:old", "create 2:new"},
		"next lower pod":                          {setOf(3), "0:ready:old 1:ready:old 2:ready:new", "replace 1"},
		"unhealthy old pod blocks":                {setOf(3), "0:ready:old 1:running:old 2:ready:old", ""},
		"no update below the partition":           {setOf(3, partitioned(2)), "0:ready:old 1:ready:old 2:ready:new", ""},
		"recreated as before below the partition": {setOf(3, partitioned(2)), "0:ready:old 2:ready:new", "create 1:old"},
		"partition counts from the start ordinal": {setOf(3, partitioned(2), from(5)),
			"5:ready:old 7:ready:new", "create 6:old"},
		"partition above all pods":                 {setOf(2, partitioned(9)), "0:ready:old 1:ready:old", ""},
		"without settings, current revision":       {setOf(2, bare), "", "create 0:old"},
		"without settings, others are new":         {setOf(2, bare), "0:ready:old", "create 1:new"},
		"on delete, no pod is replaced":            {setOf(2, onDelete), "0:ready:old 1:ready:old", ""},
		"on delete, recreated at the new revision": {setOf(2, onDelete), "0:ready:old", "create 1:new"},

		"several may be unavailable": {setOf(4, maxUnavailable("2")),
			"0:ready:old 1:ready:old 2:ready:old 3:ready:old", "replace 3, replace 2"},
		"one is unavailable already": {setOf(4, parallel, maxUnavailable("2")),
			"0:ready:old 1:ready:old 2:ready:old 3:pending:new", "replace 2"},
		"maximum is unavailable already": {setOf(4, parallel, maxUnavailable("50%")),
			"0:ready:old 1:ready:old 2:going:old 3:pending:new", ""},
		"first revision fails": {setOf(3, parallel, maxUnavailable("1")),
			"0:pending:old 1:pending:old 2:pending:old", "replace 2"},
		"failed pods before good ones": {setOf(4, parallel, maxUnavailable("2")),
			"0:pending:old 1:ready:old 2:ready:old 3:ready:old", "replace 0, replace 3"},
		"failed pods use all of maxUnavailable": {setOf(4, parallel, maxUnavailable("2")),
			"0:pending:old 1:pending:old 2:ready:old 3:pending:new", "replace 1, replace 0"},
		"percentage rounds down, to at least one": {setOf(3, parallel, maxUnavailable("10%")),
			"0:ready:old 1:ready:old 2:ready:old", "replace 2"},
		"not below the partition": {setOf(3, partitioned(2), maxUnavailable("3")),
			"0:ready:old 1:ready:old 2:ready:old", "replace 2"},

		"pod without its identity is repaired": {setOf(1), "0:adopted:new", "repair 0"},
		"deleted set does nothing":             {setOf(3, deleted), "0:failed:new", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := decide(stateOf(tc.set, tc.pods))
			if err != nil {
				t.Fatal(err)
			}
			if got := show(p); got != tc.want {
				t.Errorf("plan: %q, want %q", got, tc.want)
			}
		})
	}
}

// TestOrder checks that a StatefulSet with the policy OrderedReady creates or deletes one pod at a
// time, creates a pod only when all pods before it are ready, and deletes or replaces a pod only
// when no pod with a higher ordinal is ready.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := setOf(int32(rapid.IntRange(0, 4).Draw(t, "replicas")))
		how := map[int]string{}
		var words []string
		for i := range 6 {
			how[i] = rapid.SampledFrom([]string{"", "pending", "running", "ready", "going", "failed"}).Draw(t, "how")
			if how[i] != "" {
				words = append(words,
					fmt.Sprintf("%d:%s:%s", i, how[i], rapid.SampledFrom([]string{"old", "new"}).Draw(t, "revision")))
			}
		}
		p, err := decide(stateOf(set, strings.Join(words, " ")))
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		for _, phase := range p.phases {
			for _, s := range phase {
				steps++
				n := ordinalOf(s.pod)
				if s.verb == create {
					for i := range n {
						if how[i] != "ready" {
							t.Fatalf("%s while %d is %q", show(p), i, how[i])
						}
					}
				}
				if s.verb == destroy && n >= replicaCount(set) || s.verb == replace {
					for i := n + 1; i < 6; i++ {
						if how[i] != "" && (s.verb == destroy || how[i] != "ready" || i >= replicaCount(set)) {
							t.Fatalf("%s before %d, which is %q", show(p), i, how[i])
						}
					}
				}
			}
		}
		if steps > 1 {
			t.Fatalf("several at once: %s", show(p))
		}
	})
}

// TestConverges checks that a StatefulSet always ends with the wanted number of pods at the update
// revision, and that during an update no more pods are unavailable than allowed.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 4).Draw(t, "replicas")
		had := rapid.IntRange(0, 5).Draw(t, "had")
		most := rapid.IntRange(1, 3).Draw(t, "most")
		set := setOf(int32(n), maxUnavailable(fmt.Sprint(most)))
		if rapid.Bool().Draw(t, "parallel") {
			parallel(set)
		}
		var words []string
		for i := range had {
			words = append(words, fmt.Sprintf("%d:ready:old", i))
		}
		s := stateOf(set, strings.Join(words, " "))
		for round := range 60 {
			happens := func() bool { return round > 30 || rapid.Bool().Draw(t, "happens") }
			p, err := decide(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, phase := range p.phases {
				for _, step := range phase {
					if step.verb == create {
						s.pods = append(s.pods, podsOf(set, fmt.Sprintf("%d:pending:%s", ordinalOf(step.pod), revisionOf(step.pod)))...)
					} else {
						step.pod.DeletionTimestamp = &metav1.Time{Time: noon}
					}
				}
			}
			ready := 0
			for _, pod := range s.pods {
				if isRunningReady(pod) && !terminating(pod) {
					ready++
				}
			}
			if had == n && ready < n-most {
				t.Fatalf("%d of %d are ready after %s, %d may be unavailable", ready, n, show(p), most)
			}
			s.pods = slices.DeleteFunc(s.pods, func(pod *v1.Pod) bool { return terminating(pod) && happens() })
			for i, pod := range s.pods {
				if pod.Status.Phase == v1.PodPending && happens() {
					s.pods[i] = podsOf(set, fmt.Sprintf("%d:ready:%s", ordinalOf(pod), revisionOf(pod)))[0]
				}
			}
		}
		if st, _ := status(s, 0, 0); int(st.Replicas) != n || int(st.ReadyReplicas) != n ||
			int(st.UpdatedReplicas) != n || st.CurrentRevision != "new" {
			t.Fatalf("it ends with %+v", st)
		}
	})
}

func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		set      *appsv1.StatefulSet
		pods     string
		replaced int32
		want     string
	}{
		"none":      {setOf(2), "", 0, "0/0/0 old:0 new:0 at old"},
		"counted":   {setOf(4), "0:ready:old 1:running:old 2:going:old 3:pending:new", 0, "4/2/2 old:2 new:1 at old"},
		"available": {setOf(2, minReadySeconds(30)), "0:ready:new 1:young:new", 0, "2/2/1 old:2 new:2 at new; again in 29s"},
		"replaced":  {setOf(3), "0:ready:old 1:ready:old 2:ready:old", 1, "3/3/3 old:2 new:0 at old"},
		"complete":  {setOf(2), "0:ready:new 1:ready:new", 0, "2/2/2 old:2 new:2 at new"},
		"too many":  {setOf(1), "0:ready:new 1:ready:new", 0, "2/2/2 old:0 new:2 at old"},
		"by hand":   {setOf(1, onDelete), "0:ready:new", 0, "1/1/1 old:1 new:1 at new"},
		"one of 2":  {setOf(2, onDelete), "0:ready:new 1:ready:old", 0, "2/2/2 old:1 new:1 at old"},
		"unready":   {setOf(2, onDelete), "0:ready:new 1:running:new", 0, "2/1/1 old:0 new:2 at old"},
		"zero":      {setOf(0, onDelete), "", 0, "0/0/0 old:0 new:0 at new"},
		"partition": {setOf(2, partitioned(1)), "0:ready:old 1:ready:new", 0, "2/2/2 old:1 new:1 at old"},
		"a third":   {setOf(1), "0:ready:third", 1, "1/1/1 old:0 new:0 at old"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: "Other"}}
			s, again := status(stateOf(tc.set, tc.pods), 0, tc.replaced)
			if len(s.Conditions) != 1 || s.Conditions[0].Type != "Other" {
				t.Errorf("conditions of other clients: %v", s.Conditions)
			}
			got := fmt.Sprintf("%d/%d/%d old:%d new:%d at %s", s.Replicas, s.ReadyReplicas, s.AvailableReplicas,
				s.CurrentReplicas, s.UpdatedReplicas, s.CurrentRevision)
			if again > 0 {
				got += "; again in " + again.String()
			}
			if got != tc.want {
				t.Errorf("status: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for name, want := range map[string]string{
		"web-0": "web 0 true", "web-a-12": "web-a 12 true", "web": " 0 false", "web-": " 0 false", "web-x": " 0 false",
		"web--1": "web- 1 true", "web-+1": " 0 false", "web-99999999999": " 0 false",
	} {
		set, n, ok := parsePodName(name)
		if got := fmt.Sprint(set, " ", n, " ", ok); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
