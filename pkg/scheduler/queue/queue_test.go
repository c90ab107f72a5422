// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/scheduling"
)

const (
	initial = time.Second
	longest = 10 * time.Second
)

func newQueue(t *testing.T) (*Queue, *testingclock.FakeClock) {
	t.Helper()
	clk := testingclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	return New(Config{
		Clock: clk, InitialBackoff: initial, MaxBackoff: longest,
		Less: func(a, b scheduling.QueuedPod) bool {
			if pa, pb := *a.Pod.Spec.Priority, *b.Pod.Spec.Priority; pa != pb {
				return pa > pb
			}
			return a.Since < b.Since
		},
		Gate: func(p *v1.Pod) *scheduling.Status {
			if len(p.Spec.SchedulingGates) > 0 {
				return &scheduling.Status{Reasons: []string{"gated"}}
			}
			return nil
		},
		Gang: func(p *v1.Pod) string { return p.Annotations["gang"] },
	}), clk
}

func pod(name string, priority int32) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1.PodSpec{Priority: &priority}}
}

// next pops the next pod and returns its name, or "" if no pod can be tried. The pod is in flight
// afterwards.
func next(q *Queue) (string, *Item) {
	item, _ := q.tryPop()
	if item == nil {
		return "", nil
	}
	return item.Pod.Name, item
}

func mustNext(t *testing.T, q *Queue, want string) *Item {
	t.Helper()
	got, item := next(q)
	if got != want {
		t.Fatalf("next is %q, want %q", got, want)
	}
	return item
}

// TestOrder checks that Pop returns pods by priority, and that unschedulable pods do not delay
// other pods.
func TestOrder(t *testing.T) {
	q, clk := newQueue(t)
	for _, p := range []*v1.Pod{pod("low", 1), pod("high", 9), pod("late", 5), pod("later", 5)} {
		q.Set(p)
		clk.Step(time.Millisecond)
	}
	for _, want := range []string{"high", "late", "later", "low"} {
		q.Unschedulable(mustNext(t, q, want), scheduling.NodeAdded, false)
	}
	mustNext(t, q, "")
	q.Set(pod("new", 0))
	q.Done(mustNext(t, q, "new").Pod.UID)
	if _, err := q.Pop(canceled(t)); err == nil {
		t.Error("there is still a pod to try")
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestEventsThatHelp checks that a pod is tried again only after the events that it waits for, and
// that such an event is not lost if it happens while the pod is in flight.
func TestEventsThatHelp(t *testing.T) {
	q, clk := newQueue(t)
	q.Set(pod("p", 1))
	item := mustNext(t, q, "p")
	q.Unschedulable(item, scheduling.NodeAdded, false)
	clk.Step(time.Minute) // longer than the maximum backoff
	q.Happened(scheduling.PodRemoved)
	mustNext(t, q, "")
	q.Happened(scheduling.NodeAdded)
	item = mustNext(t, q, "p")
	q.Happened(scheduling.NodeAdded)
	q.Unschedulable(item, scheduling.NodeAdded, false)
	item = mustNext(t, q, "p")
	q.Unschedulable(item, scheduling.PodRemoved, true)
	clk.Step(time.Minute)
	q.HappenedFor(scheduling.PodRemoved, func(*Item) bool { return false })
	mustNext(t, q, "")
	q.Hold(item)
	q.HappenedFor(scheduling.PodRemoved, func(*Item) bool { return true })
	mustNext(t, q, "")
	q.Release(item)
	mustNext(t, q, "p")
}

// TestChangedPods checks that a gated pod is tried once no plugin gates it any more, and that an
// unschedulable pod is tried when it changes.
func TestChangedPods(t *testing.T) {
	q, clk := newQueue(t)
	gated := pod("g", 1)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
	q.Set(gated)
	mustNext(t, q, "")
	if q.GatedBy("g") == nil {
		t.Error("not gated")
	}
	open := pod("g", 1)
	open.Generation = 2
	q.Set(open)
	q.Unschedulable(mustNext(t, q, "g"), 0, false)
	clk.Step(time.Minute)
	same := open.DeepCopy()
	same.Status.Message = "of no interest"
	q.Set(same)
	mustNext(t, q, "")
	other := open.DeepCopy()
	other.Generation = 3
	q.Set(other)
	mustNext(t, q, "g")
	q.Delete("g")
	if n := q.Counts(); n.Active+n.Backoff+n.Unschedulable+n.Gated+n.Popped != 0 || q.Get("g") != nil {
		t.Error("a deleted pod is still in the queue")
	}
}

// TestOneState checks that the state of a pod in flight stays the same when the pod changes, while
// Get returns the latest state.
func TestOneState(t *testing.T) {
	q, clk := newQueue(t)
	first, second := pod("a", 1), pod("a", 7)
	second.Generation = 2
	q.Set(first)
	item := mustNext(t, q, "a")
	q.Set(second)
	if item.Pod != first || q.Get("a") != second {
		t.Errorf("generations %d in flight, %d in the queue", item.Pod.Generation, q.Get("a").Generation)
	}
	q.Unschedulable(item, 0, false)
	clk.Step(initial)
	q.Set(pod("b", 3))
	if again := mustNext(t, q, "a"); again.Pod != second { // the changed priority puts it at its new position
		t.Errorf("taken out in generation %d", again.Pod.Generation)
	}
}

// TestBackoff checks that the backoff doubles up to its maximum, and that a pod whose attempt ended
// with an error is not tried before its backoff ends.
func TestBackoff(t *testing.T) {
	q, clk := newQueue(t)
	q.Set(pod("p", 1))
	for _, seconds := range []int{1, 2, 4, 8, 10, 10} {
		want := time.Duration(seconds) * time.Second
		q.Retry(mustNext(t, q, "p"))
		if _, wait := q.tryPop(); wait != want {
			t.Fatalf("waits for %v, want %v", wait, want)
		}
		clk.Step(want - 1)
		mustNext(t, q, "")
		clk.Step(1)
	}
}

// TestClockJumps checks that a pod is tried again soon even if the clock jumps by years.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"back": -20 * 365 * 24 * time.Hour,
		"ahead": 20 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			q, clk := newQueue(t)
			for i, p := range []string{"fresh", "parked", "failed"} {
				q.Set(pod(p, int32(i)))
			}
			q.Retry(mustNext(t, q, "failed"))
			q.Unschedulable(mustNext(t, q, "parked"), scheduling.NodeAdded, false)
			clk.SetTime(clk.Now().Add(jump))
			q.Flush()
			clk.Step(longest)
			var tried []string
			for got, _ := next(q); got != ""; got, _ = next(q) {
				tried = append(tried, got)
			}
			if slices.Sort(tried); !slices.Equal(tried, []string{"failed", "fresh", "parked"}) {
				t.Errorf("tried %v", tried)
			}
		})
	}
}

// TestGang checks that Gang returns all pods of a gang, or none if there are too few.
func TestGang(t *testing.T) {
	q, _ := newQueue(t)
	member := func(name string) *v1.Pod {
		p := pod(name, 1)
		p.Annotations = map[string]string{"gang": "g"}
		return p
	}
	q.Set(member("a"))
	q.Set(pod("other", 0))
	item := mustNext(t, q, "a")
	if all, complete := q.Gang(item, 2); complete || len(all) != 1 {
		t.Fatalf("%d of 2 are complete: %v", len(all), complete)
	}
	q.Await(item, 0)
	q.Set(member("b"))
	item = mustNext(t, q, "b")
	all, complete := q.Gang(item, 2)
	if !complete || len(all) != 2 {
		t.Fatalf("%d of 2 are complete: %v", len(all), complete)
	}
	mustNext(t, q, "other")
	mustNext(t, q, "")
	for _, item := range all {
		q.Done(item.Pod.UID)
	}
	if len(q.gangs) != 0 {
		t.Error("a gang without pods is kept")
	}
}

// TestWake checks that Wake makes only the pods of one gang try again, also a pod that is in flight, and
// a held pod once it is released.
func TestWake(t *testing.T) {
	q, clk := newQueue(t)
	items := map[string]*Item{}
	for _, name := range []string{"waits", "refused", "held", "flies", "other"} {
		p := pod(name, 1)
		p.Annotations = map[string]string{"gang": "g"}
		if name == "other" {
			p.Annotations["gang"] = "h"
		}
		q.Set(p)
		items[name] = mustNext(t, q, name)
	}
	q.Await(items["waits"], 0)
	q.Await(items["other"], 0)
	for _, name := range []string{"refused", "held"} {
		q.Unschedulable(items[name], 0, false)
	}
	q.Hold(items["held"])
	clk.Step(longest)
	q.Wake("g")
	got := []string{mustNextAny(t, q), mustNextAny(t, q)}
	slices.Sort(got)
	if want := []string{"refused", "waits"}; !slices.Equal(got, want) {
		t.Errorf("%q are tried, want %q", got, want)
	}
	mustNext(t, q, "")
	q.Await(items["flies"], 0)
	mustNext(t, q, "flies")
	q.Release(items["held"])
	mustNext(t, q, "held")
	mustNext(t, q, "")
}

// mustNextAny pops a pod and returns its name.
func mustNextAny(t *testing.T, q *Queue) string {
	t.Helper()
	name, item := next(q)
	if item == nil {
		t.Fatal("no pod is tried")
	}
	return name
}
