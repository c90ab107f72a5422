// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func manager(t *testing.T, dir string, pods ...*v1.Pod) *Manager {
	t.Helper()
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("10")}
	return NewManager(Config{
		Log: slog.New(slog.DiscardHandler), Dir: dir, Pods: func() []*v1.Pod { return pods },
		Check: func(pod *v1.Pod, others []*v1.Pod) *Refusal { return Check(pod, others, Node{Allocatable: limits}) },
	})
}

// TestOneOfTwoPodsFits checks that only one of two pods is admitted if both together do not fit on
// the node, even if they are admitted concurrently.
func TestOneOfTwoPodsFits(t *testing.T) {
	a, b := podOf("a", asks(v1.ResourceCPU, "1500m")), podOf("b", asks(v1.ResourceCPU, "1500m"))
	m := manager(t, t.TempDir(), a, b)
	var wg sync.WaitGroup
	var refused [2]*Refusal
	for i, pod := range []*v1.Pod{a, b} {
		wg.Go(func() { refused[i] = m.Admit(pod) })
	}
	wg.Wait()
	if (refused[0] == nil) == (refused[1] == nil) {
		t.Errorf("want one of two refused, got %v and %v", refused[0], refused[1])
	}
}

func TestCountedPods(t *testing.T) {
	running := podOf("running", asks(v1.ResourceCPU, "1"))
	running.Status.ContainerStatuses = []v1.ContainerStatus{{ContainerID: "r://1"}}
	ended := podOf("ended", asks(v1.ResourceCPU, "1"))
	ended.Status.Phase = v1.PodSucceeded
	ended.Status.ContainerStatuses = running.Status.ContainerStatuses
	fresh, more := podOf("fresh", asks(v1.ResourceCPU, "1")), podOf("more", asks(v1.ResourceCPU, "1"))
	m := manager(t, t.TempDir(), running, ended, fresh, more)
	if r := m.Admit(fresh); r != nil {
		t.Fatalf("refused beside a pod that ran before and one that ended: %+v", *r)
	}
	if r := m.Admit(more); r == nil {
		t.Fatal("a pod that ran before this kubelet was not counted")
	}
	m.Forget(fresh.UID)
	if r := m.Admit(more); r != nil {
		t.Errorf("refused after another pod has ended: %+v", *r)
	}
	if r := m.Admit(running); r != nil {
		t.Errorf("a pod that ran before this kubelet was refused: %+v", *r)
	}
}

// TestRestart checks that a restarted kubelet keeps the resources granted to a pod, even if the pod
// now requests different ones.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	pod := podOf("a", asks(v1.ResourceCPU, "1"))
	if r := manager(t, dir, pod).Admit(pod); r != nil {
		t.Fatal(*r)
	}
	bigger := podOf("a", asks(v1.ResourceCPU, "8"))
	m := manager(t, dir, bigger)
	if r := m.Admit(bigger); r != nil {
		t.Errorf("refused after the restart: %+v", *r)
	}
	got, differs := m.Allocated(bigger)
	if cpu := got.Spec.Containers[0].Resources.Requests.Cpu(); !differs || cpu.String() != "1" {
		t.Errorf("given %s, want 1", cpu)
	}
	if bigger.Spec.Containers[0].Resources.Requests.Cpu().String() != "8" {
		t.Error("the pod was changed")
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(`{"version":1,"po`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, differs := manager(t, dir, bigger).Allocated(bigger); differs {
		t.Error("a broken file was believed")
	}
}

// TestFixed checks that a resize that can never be granted is reported as infeasible even if the
// node also lacks the resources.
func TestFixed(t *testing.T) {
	pod := podOf("a", asks(v1.ResourceCPU, "1"))
	m := manager(t, t.TempDir(), pod)
	m.cfg.Fixed = func(_, has *v1.Pod) *Refusal { return &Refusal{Reason: v1.PodReasonInfeasible, Message: has.Name} }
	if r := m.Admit(pod); r != nil {
		t.Fatal(r)
	}
	if r := m.Resize(pod); r.Pending != nil {
		t.Errorf("pending without a new request: %v", r.Pending)
	}
	told := 0
	m.cfg.Infeasible = func(string) { told++ }
	other := podOf("a", asks(v1.ResourceCPU, "20"))
	for range 2 { // the second call must not report the same version again
		if r := m.Resize(other); r.Pending == nil || r.Pending.Reason != v1.PodReasonInfeasible || r.Granted || told != 1 {
			t.Errorf("%+v, %d reports", r, told)
		}
	}
	other.Generation++
	if m.Resize(other); told != 2 {
		t.Errorf("%d reports for two versions", told)
	}
}

// TestAccepted checks which trigger is reported when a deferred resize is granted.
func TestAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		free func(m *Manager, pods map[types.UID]*v1.Pod)
		want string
	}{
		"AnotherIsGone": {func(m *Manager, pods map[types.UID]*v1.Pod) {
			delete(pods, "big")
			m.Forget("big")
		}, "pods_removed"},
		"AnotherShrinks": {func(m *Manager, pods map[types.UID]*v1.Pod) {
			pods["big"] = podOf("big", asks(v1.ResourceCPU, "100m"))
			m.Resize(pods["big"])
		}, "pod_resized"},
		"AsksForLess": {func(m *Manager, pods map[types.UID]*v1.Pod) {
			pods["waits"] = podOf("waits", asks(v1.ResourceCPU, "500m"))
			pods["waits"].Generation = 3
			m.Resize(pods["waits"])
		}, "pod_updated"},
		"IsLookedAt": {func(m *Manager, pods map[types.UID]*v1.Pod) {
			pods["big"].Status.Phase = v1.PodSucceeded
			m.Resize(pods["waits"])
		}, "periodic_retry"},
		"Nothing": {func(m *Manager, pods map[types.UID]*v1.Pod) { m.Resize(pods["waits"]) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pods := map[types.UID]*v1.Pod{"big": podOf("big", asks(v1.ResourceCPU, "1500m")),
				"waits": podOf("waits", asks(v1.ResourceCPU, "400m"))}
			m := manager(t, t.TempDir())
			var told string
			m.cfg.Pods = func() []*v1.Pod { return slices.Collect(maps.Values(pods)) }
			m.cfg.Freed, m.cfg.Accepted = func(types.UID) {}, func(trigger string) { told += trigger }
			for _, pod := range pods {
				if r := m.Admit(pod); r != nil {
					t.Fatal(r)
				}
			}
			pods["waits"] = podOf("waits", asks(v1.ResourceCPU, "1"))
			pods["waits"].Generation = 2
			if r := m.Resize(pods["waits"]); r.Pending == nil {
				t.Fatalf("refused although it fits: %+v", r)
			}
			if c.free(m, pods); told != c.want {
				t.Errorf("got %q, want %q", told, c.want)
			}
		})
	}
}

// TestResizeOrder checks that free resources are granted to waiting pods by their priority, even if
// a pod of lower priority calls Resize first.
func TestResizeOrder(t *testing.T) {
	low, high, other, shrinks := podOf("low", asks(v1.ResourceCPU, "400m")),
		podOf("high", asks(v1.ResourceCPU, "400m")), podOf("other", asks(v1.ResourceCPU, "600m")),
		podOf("shrinks", asks(v1.ResourceCPU, "600m"))
	pods := map[string]*v1.Pod{"low": low, "high": high, "other": other, "shrinks": shrinks}
	m := manager(t, t.TempDir())
	m.cfg.Pods = func() []*v1.Pod { return slices.Collect(maps.Values(pods)) }
	var told []string
	m.cfg.Freed = func(uid types.UID) { told = append(told, string(uid)) }
	for name, pod := range pods {
		if r := m.Admit(pod); r != nil {
			t.Fatal(name, r)
		}
	}
	wants := func(name, cpu string, priority int32) Resize {
		pod := podOf(types.UID(name), asks(v1.ResourceCPU, cpu))
		pod.Spec.Priority = &priority
		pods[name] = pod
		return m.Resize(pod)
	}
	if r := wants("low", "900m", 1); r.Pending == nil || r.Granted {
		t.Fatalf("refused although it fits: %+v", r)
	}
	if r := wants("high", "900m", 5); r.Pending == nil {
		t.Fatalf("refused although it fits: %+v", r)
	}
	delete(pods, "other") // now 600m of CPU are free
	if r := m.Resize(pods["low"]); r.Pending == nil || r.Granted {
		t.Errorf("it came before a more important pod: %+v", r)
	}
	if len(told) != 1 || told[0] != "high" {
		t.Errorf("reported %v", told)
	}
	if r := m.Resize(pods["high"]); r.Pending != nil || !r.Granted ||
		r.Pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "900m" {
		t.Errorf("the more important: %+v", r)
	}
	if r := m.Resize(pods["high"]); r.Granted {
		t.Error("it is granted twice")
	}
	// Of the node's 2 CPUs, 100m are free. A pod that now requests 500m less frees enough for the
	// resize that is waiting.
	if r := wants("shrinks", "100m", 0); r.Pending != nil || !r.Granted {
		t.Errorf("one that asks for less: %+v", r)
	}
	if r := m.Resize(pods["low"]); r.Pending != nil || !r.Granted || len(told) != 2 || told[1] != "low" {
		t.Errorf("the last one: %+v, reported %v", r, told)
	}
}
