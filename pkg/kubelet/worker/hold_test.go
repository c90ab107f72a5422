// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/source"
	"keelson.dev/keelson/pkg/restorehold"
)

// held returns a pod that is held.
func held() *v1.Pod {
	pod := testPod(v1.RestartPolicyAlways, "i:init", "a")
	pod.Labels = map[string]string{restorehold.Held: "7"}
	return pod
}

// setHeld sets or removes the label of a held pod in the API.
func (n *testNode) setHeld(held bool) {
	n.mu.Lock()
	pod := n.api.DeepCopy()
	if pod.Labels = nil; held {
		pod.Labels = map[string]string{restorehold.Held: "7"}
	}
	n.api = pod
	pool := n.pool
	n.mu.Unlock()
	pool.Set(pod)
}

// TestHeldPodWaits checks that nothing of a held pod starts, that its status says why, also after a
// restart of the kubelet, and that the pod starts as soon as it is released.
func TestHeldPodWaits(t *testing.T) {
	bubble(t, held(), func(t *testing.T, n *testNode) {
		for range 2 {
			pass(time.Minute)
			if calls := n.runtime.called("RunSandbox") + n.runtime.called("Prepare"); calls != 0 {
				t.Fatalf("%d calls for a held pod", calls)
			}
			s := n.status()
			for _, c := range []v1.ContainerStatus{s.InitContainerStatuses[0], s.ContainerStatuses[0]} {
				if w := c.State.Waiting; w == nil || w.Reason != "RestoreHold" || w.Message == "" {
					t.Errorf("%s: %+v", c.Name, c.State)
				}
			}
			n.stop()
			n.start()
		}
		n.setHeld(false)
		pass(time.Second)
		n.runtime.die(n.runtime.running("init"), 0)
		pass(time.Second)
		if n.runtime.running("a") == "" {
			t.Error("the pod does not run after its release")
		}
		for _, s := range n.written {
			if w := s.ContainerStatuses[0].State.Waiting; s.Phase == v1.PodRunning && w != nil && w.Reason == "RestoreHold" {
				t.Errorf("still held after the start: %+v", s)
			}
		}
	})
}

// TestHeldPodGoesOn checks that a pod that runs when it is held goes on, and restarts its containers.
func TestHeldPodGoesOn(t *testing.T) {
	bubble(t, testPod(v1.RestartPolicyAlways, "a"), func(t *testing.T, n *testNode) {
		pass(time.Second)
		first := n.runtime.running("a")
		n.setHeld(true)
		pass(time.Minute)
		if first == "" || n.runtime.running("a") != first {
			t.Fatalf("the container was restarted: %q, %q", first, n.runtime.running("a"))
		}
		n.runtime.die(first, 1)
		pass(time.Minute)
		if n.runtime.running("a") == "" {
			t.Error("the container was not restarted after its exit")
		}
	})
}

// TestHeldPodThatHasExitedWaits checks that a held pod waits if its sandbox exists but no container runs:
// it may have failed in the lost history, and have been replaced.
func TestHeldPodThatHasExitedWaits(t *testing.T) {
	bubble(t, testPod(v1.RestartPolicyAlways, "a"), func(t *testing.T, n *testNode) {
		pass(time.Second)
		n.stop()
		n.runtime.die(n.runtime.running("a"), 1)
		n.mu.Lock()
		n.api.Labels = map[string]string{restorehold.Held: "7"}
		n.mu.Unlock()
		n.start()
		pass(10 * time.Minute)
		if id := n.runtime.running("a"); id != "" {
			t.Errorf("%s runs", id)
		}
		n.remove(1, false)
		pass(time.Minute)
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.deleted {
			t.Error("a held pod cannot be deleted")
		}
	})
}

// TestStaticPodIsNotHeld checks that a static pod starts even if its file has the label of held pods.
func TestStaticPodIsNotHeld(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Labels = map[string]string{restorehold.Held: "7"}
	pod.Annotations = map[string]string{source.AnnotationSource: source.File}
	bubble(t, pod, func(t *testing.T, n *testNode) {
		pass(time.Second)
		if n.runtime.running("a") == "" {
			t.Error("the pod does not run")
		}
	})
}
