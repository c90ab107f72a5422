// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// setResources sets the CPU and memory of a container, as requests and as limits.
func setResources(pod *v1.Pod, name, cpu, memory string) {
	l := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	specIn(pod, name).Resources = v1.ResourceRequirements{Requests: l, Limits: l.DeepCopy()}
}

// ask changes the pod in the API as a user would, and waits until the worker has handled the
// change.
func (n *testNode) ask(change func(pod *v1.Pod)) {
	n.mu.Lock()
	pod := n.api.DeepCopy()
	change(pod)
	pod.Generation++
	n.api = pod
	pool := n.pool
	n.mu.Unlock()
	pool.Set(pod)
	pass(time.Second)
}

func (n *testNode) condition(kind v1.PodConditionType) *v1.PodCondition {
	list := n.status().Conditions
	if i := slices.IndexFunc(list, func(c v1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return &list[i]
	}
	return nil
}

func (n *testNode) countEvents(reason string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, e := range n.events {
		if strings.HasPrefix(e, reason+" ") {
			count++
		}
	}
	return count
}

func (n *testNode) allocatedCPU(container int) string {
	return n.status().ContainerStatuses[container].AllocatedResources.Cpu().String()
}

func TestResizeInPlace(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a", "b")
	setResources(pod, "a", "100m", "64Mi")
	setResources(pod, "b", "200m", "64Mi")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		a, b := n.runtime.running("a"), n.runtime.running("b")
		n.runtime.mu.Lock()
		n.runtime.failures["UpdateResources"] = 1
		n.runtime.mu.Unlock()
		n.ask(func(pod *v1.Pod) {
			setResources(pod, "a", "300m", "64Mi")
			setResources(pod, "b", "100m", "32Mi")
		})
		if n.runtime.running("a") != a || n.runtime.running("b") != b {
			t.Error("a container was restarted")
		}
		if want := []string{b, a}; !slices.Equal(n.runtime.order, want) {
			t.Errorf("updated %v, want %v: what gets less comes first", n.runtime.order, want)
		}
		if r := n.runtime.find(a).Resources; r.CpuShares != 307 || r.CpuQuota != 30000 || r.MemoryLimitInBytes != 64<<20 {
			t.Errorf("resources %v", r)
		}
		if n.condition(v1.PodResizeInProgress) != nil || n.condition(v1.PodResizePending) != nil {
			t.Errorf("conditions %+v", n.status().Conditions)
		}
		if n.allocatedCPU(0) != "300m" || n.status().ContainerStatuses[0].Resources.Limits.Cpu().String() != "300m" {
			t.Errorf("status %+v", n.status().ContainerStatuses[0])
		}
		if n.countEvents("ResizeStarted") != 1 || n.countEvents("ResizeCompleted") != 1 {
			t.Errorf("events %q", n.events)
		}
		if n.countEvents("asked") != 1 || n.countEvents("resized false") != 1 || n.countEvents("resized true") != 1 {
			t.Errorf("events %q", n.events)
		}
	})
}

// TestResizeByRestart checks that a container whose resize policy requires a restart is restarted,
// even if it exits with 0 and the restart policy is OnFailure.
func TestResizeByRestart(t *testing.T) {
	pod := testPod(v1.RestartPolicyOnFailure, "a", "b")
	setResources(pod, "a", "100m", "64Mi")
	setResources(pod, "b", "100m", "64Mi")
	specIn(pod, "a").ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	bubble(t, pod, func(t *testing.T, n *testNode) {
		a, b := n.runtime.running("a"), n.runtime.running("b")
		n.ask(func(pod *v1.Pod) { setResources(pod, "a", "200m", "64Mi") })
		if n.runtime.running("a") != a {
			t.Error("restarted for its CPU")
		}
		n.runtime.mu.Lock()
		n.runtime.code = 0
		n.runtime.mu.Unlock()
		n.ask(func(pod *v1.Pod) { setResources(pod, "a", "200m", "128Mi") })
		pass(time.Second)
		now := n.runtime.running("a")
		if now == a || now == "" || n.runtime.running("b") != b {
			t.Fatalf("a: %q was %q, b: %q was %q", now, a, n.runtime.running("b"), b)
		}
		if c := n.runtime.find(now); c.Resources.MemoryLimitInBytes != 128<<20 || c.Restarts != 1 {
			t.Errorf("run %+v", c)
		}
		if n.countEvents("Killing") != 1 || n.condition(v1.PodResizeInProgress) != nil ||
			n.countEvents("ResizeCompleted") != 2 {
			t.Errorf("events %q", n.events)
		}
	})
}

// TestResizeWithoutRoom checks a resize for which the node lacks resources: the pod keeps its
// resources, its status shows the resize as deferred, and the pod gets the requested resources when
// another pod has freed them.
func TestResizeWithoutRoom(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	setResources(pod, "a", "500m", "64Mi")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.ask(func(pod *v1.Pod) { setResources(pod, "a", "2", "64Mi") })
		c := n.condition(v1.PodResizePending)
		if c == nil || c.Reason != v1.PodReasonDeferred || c.ObservedGeneration != 1 ||
			c.Message != "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000" {
			t.Fatalf("condition %+v", c)
		}
		if n.allocatedCPU(0) != "500m" || len(n.runtime.order) != 0 || n.status().ObservedGeneration != 1 {
			t.Errorf("status %+v", n.status())
		}
		pass(5 * time.Minute)
		if n.countEvents("ResizeDeferred") != 1 {
			t.Errorf("events %q", n.events)
		}
		n.given.Forget("other")
		pass(time.Second)
		if n.condition(v1.PodResizePending) != nil || n.allocatedCPU(0) != "2" || len(n.runtime.order) != 1 {
			t.Errorf("status %+v", n.status())
		}
	})
}

// TestResizeBeforeAllPodsAreKnown checks that a resize is neither granted nor refused before the
// kubelet knows all pods of the node, and that it is granted soon afterwards. While pods are missing,
// the node seems to have more free resources than it has.
func TestResizeBeforeAllPodsAreKnown(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	setResources(pod, "a", "500m", "64Mi")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.unlisted.Store(true)
		n.ask(func(pod *v1.Pod) { setResources(pod, "a", "1", "64Mi") })
		n.given.Forget("other") // does not grant resizes either
		pass(5 * time.Minute)
		if n.allocatedCPU(0) != "500m" || len(n.runtime.order) != 0 || n.condition(v1.PodResizePending) != nil ||
			n.countEvents("ResizeDeferred") != 0 {
			t.Errorf("before: status %+v, events %q", n.status(), n.events)
		}
		n.unlisted.Store(false)
		pass(retryUndecided)
		if n.allocatedCPU(0) != "1" || len(n.runtime.order) != 1 {
			t.Errorf("after: status %+v", n.status())
		}
	})
}

// TestFailedResize checks that the memory limit of a container is not set below the memory in use,
// and that a restarted kubelet keeps trying until the container uses less memory.
func TestFailedResize(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	setResources(pod, "a", "500m", "64Mi")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.runtime.used = 40 << 20
		n.ask(func(pod *v1.Pod) { setResources(pod, "a", "500m", "32Mi") })
		c := n.condition(v1.PodResizeInProgress)
		if c == nil || c.Reason != v1.PodReasonError || c.Message != `cannot decrease memory limits: `+
			`attempting to set container "a" memory limit (33554432) below current usage (41943040)` {
			t.Fatalf("condition %+v", c)
		}
		n.stop()
		n.start()
		pass(time.Second)
		if n.condition(v1.PodResizeInProgress) == nil {
			t.Error("the resize is forgotten")
		}
		n.runtime.mu.Lock()
		n.runtime.used = 20 << 20
		n.runtime.mu.Unlock()
		pass(3 * time.Minute)
		if run := n.last("a"); run.State != cri.Running || run.Resources.MemoryLimitInBytes != 32<<20 ||
			n.condition(v1.PodResizeInProgress) != nil {
			t.Errorf("run %+v, conditions %+v", run, n.status().Conditions)
		}
	})
}

// TestFailedResizeAffectsNoOtherContainer checks that another container of the pod still restarts
// while the resize of a container keeps failing.
func TestFailedResizeAffectsNoOtherContainer(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a", "b")
	setResources(pod, "a", "500m", "64Mi")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.runtime.used = 40 << 20
		n.ask(func(pod *v1.Pod) { setResources(pod, "a", "500m", "32Mi") })
		n.runtime.die(n.runtime.running("b"), 1)
		pass(time.Minute)
		if n.runtime.running("b") == "" || n.condition(v1.PodResizeInProgress) == nil {
			t.Errorf("b %q, conditions %+v", n.runtime.running("b"), n.status().Conditions)
		}
	})
}
