// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestResizeOfInitContainers checks that a running init container is resized without a restart, and
// that a later init container, when it starts, gets the resources granted by then.
func TestResizeOfInitContainers(t *testing.T) {
	pod := testPod(v1.RestartPolicyNever, "i:first", "s:side", "i:second", "main")
	for _, name := range []string{"first", "side", "second", "main"} {
		setResources(pod, name, "100m", "64Mi")
	}
	bubble(t, pod, func(t *testing.T, n *testNode) {
		first := n.runtime.running("first")
		n.ask(func(pod *v1.Pod) {
			setResources(pod, "first", "200m", "128Mi")
			setResources(pod, "side", "300m", "64Mi")
			setResources(pod, "second", "400m", "64Mi")
		})
		if n.runtime.running("first") != first || len(n.runtime.order) != 1 {
			t.Fatalf("runs %q, was %q, updated %v", n.runtime.running("first"), first, n.runtime.order)
		}
		if r := n.runtime.find(first).Resources; r.CpuQuota != 20000 || r.MemoryLimitInBytes != 128<<20 {
			t.Errorf("resources %v", r)
		}
		s := n.status().InitContainerStatuses[0]
		if s.AllocatedResources.Cpu().String() != "200m" || s.Resources.Limits.Memory().String() != "128Mi" ||
			n.condition(v1.PodResizeInProgress) != nil {
			t.Errorf("status %+v", n.status())
		}
		if n.countEvents("ResizeStarted") != 1 || n.countEvents("ResizeCompleted") != 1 {
			t.Errorf("events %q", n.events)
		}
		n.runtime.die(first, 0)
		pass(time.Second)
		if run := n.last("side"); run.Resources.CpuQuota != 30000 {
			t.Errorf("the sidecar has %v", run.Resources)
		}
		if run := n.last("second"); run.Resources.CpuQuota != 40000 {
			t.Errorf("the second has %v", run.Resources)
		}
		side := n.runtime.running("side")
		n.ask(func(pod *v1.Pod) {
			setResources(pod, "first", "500m", "64Mi") // has no effect, because this container has already exited
			setResources(pod, "side", "100m", "64Mi")
			setResources(pod, "main", "200m", "64Mi")
		})
		if n.runtime.running("side") != side || n.runtime.find(side).Resources.CpuQuota != 10000 ||
			n.condition(v1.PodResizeInProgress) != nil {
			t.Errorf("the sidecar has %v, conditions %+v", n.runtime.find(side).Resources, n.status().Conditions)
		}
		n.runtime.die(n.runtime.running("second"), 0)
		pass(time.Second)
		if run := n.last("main"); run.Resources.CpuQuota != 20000 || n.runtime.started["first"] != 1 {
			t.Errorf("main has %v, the first started %d times", run.Resources, n.runtime.started["first"])
		}
	})
}

// TestResizeOfInitContainerWithoutRoom checks that the resize of an init container is deferred if
// the node lacks the requested resources.
func TestResizeOfInitContainerWithoutRoom(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "i:first", "main")
	setResources(pod, "first", "100m", "64Mi")
	setResources(pod, "main", "600m", "64Mi")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.ask(func(pod *v1.Pod) { setResources(pod, "first", "1", "64Mi") })
		if len(n.runtime.order) != 1 || n.condition(v1.PodResizePending) != nil {
			t.Fatalf("updated %v, conditions %+v", n.runtime.order, n.status().Conditions)
		}
		n.ask(func(pod *v1.Pod) { setResources(pod, "first", "2", "64Mi") })
		c := n.condition(v1.PodResizePending)
		if c == nil || c.Reason != v1.PodReasonDeferred || len(n.runtime.order) != 1 {
			t.Fatalf("condition %+v, updated %v", c, n.runtime.order)
		}
		if got := n.status().InitContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" {
			t.Errorf("given %s", got)
		}
	})
}

// TestResizeOfInitContainerByRestart checks an init container whose resize policy requires a
// restart; earlier versions of the API accepted that. The stopped run exits with code 0, but the
// init container must run again before the main container may start.
func TestResizeOfInitContainerByRestart(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "i:first", "main")
	setResources(pod, "first", "100m", "64Mi")
	specIn(pod, "first").ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.runtime.mu.Lock()
		n.runtime.code = 0
		n.runtime.mu.Unlock()
		n.ask(func(pod *v1.Pod) { setResources(pod, "first", "200m", "64Mi") })
		pass(time.Second)
		if n.runtime.started["first"] != 2 || n.runtime.running("first") == "" || n.runtime.started["main"] != 0 {
			t.Fatalf("started %v", n.runtime.started)
		}
		if run := n.last("first"); run.Resources.CpuQuota != 20000 || n.condition(v1.PodResizeInProgress) != nil {
			t.Errorf("has %v, conditions %+v", run.Resources, n.status().Conditions)
		}
	})
}
