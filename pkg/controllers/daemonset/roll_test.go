// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// world simulates a cluster: it carries out plans, and pods become ready or disappear in random
// order.
type world struct {
	*rapid.T
	state
	made  int
	eager bool // if true, all pods that can become ready or disappear do so at once
}

// carryOut makes a plan and carries it out in the simulated cluster.
func (w *world) carryOut() {
	p, err := decide(&w.state)
	if err != nil {
		w.Fatal(err)
	}
	for i := range w.places {
		at := &w.places[i]
		if slices.Contains(p.create, at.name) {
			w.made++
			at.pods = append(at.pods, podOf(fmt.Sprintf("x%d", w.made), "waiting", "new", at.name, w.now))
		}
		for _, pod := range at.pods {
			if slices.Contains(p.delete, pod) {
				pod.DeletionTimestamp = &metav1.Time{Time: w.now}
			}
		}
	}
}

// progress makes some pending pods ready and removes some pods that are being deleted.
func (w *world) progress() {
	for i := range w.places {
		at := &w.places[i]
		for j, pod := range at.pods {
			w.now = w.now.Add(time.Second)
			if pod.Status.Phase == v1.PodPending && pod.DeletionTimestamp == nil && w.happens() {
				at.pods[j] = podOf(pod.Name, "ready", "new", at.name, w.now)
			}
		}
		at.pods = slices.DeleteFunc(at.pods, func(p *v1.Pod) bool { return p.DeletionTimestamp != nil && w.happens() })
	}
}

func (w *world) happens() bool { return w.eager || rapid.Bool().Draw(w.T, "happens") }

// counts returns how many nodes have an available pod, and how many pods are not being deleted.
func (w *world) counts() (served, pods int) {
	for _, at := range w.places {
		left := living(at.pods)
		pods += len(left)
		if slices.ContainsFunc(left, w.available) {
			served++
		}
	}
	return served, pods
}

// TestRolling checks that a rolling update never exceeds its limits and that it completes, no
// matter in which order pods become ready and disappear.
func TestRolling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "nodes")
		limit := rapid.IntRange(1, 3).Draw(t, "limit")
		surging := rapid.Bool().Draw(t, "surge")
		set := setOf("surge=0")
		set.Spec.MinReadySeconds = 0
		rolling := &appsv1.RollingUpdateDaemonSet{MaxSurge: new(intstr.FromInt(0)),
			MaxUnavailable: new(intstr.FromInt(limit))}
		if surging {
			rolling.MaxSurge, rolling.MaxUnavailable = rolling.MaxUnavailable, rolling.MaxSurge
		}
		set.Spec.UpdateStrategy.RollingUpdate = rolling
		w := &world{T: t, state: state{set: set, hash: "new", now: noon, held: func(string) time.Duration { return 0 }}}
		for i := range n {
			w.places = append(w.places, layOut(fmt.Sprintf("n%d a%d:ready:old", i, i))...)
		}
		for round := range 60 {
			w.eager = round > 30
			w.carryOut()
			served, pods := w.counts()
			if surging && (served < n || pods > n+limit) || !surging && (served < n-limit || pods > n) {
				t.Fatalf("%d of %d nodes are served by %d pods, with a limit of %d", served, n, pods, limit)
			}
			w.progress()
		}
		for _, at := range w.places {
			if len(at.pods) != 1 || !updated(set, at.pods[0], "new") || !w.available(at.pods[0]) {
				t.Fatalf("it ends with %d pods on %s", len(at.pods), at.name)
			}
		}
	})
}
