// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// TestStartWaitsForVictims checks that a pod for which other pods are preempted starts when they
// have ended or the maximum waiting time has passed, and that it can be deleted while it waits.
func TestStartWaitsForVictims(t *testing.T) {
	waiting := func(t *testing.T, f func(t *testing.T, n *testNode)) {
		n := newTestNode(t, testPod(v1.RestartPolicyAlways, "a"))
		synctest.Test(t, func(t *testing.T) {
			n.room = clock.Real().Now().Add(time.Minute)
			n.start()
			defer n.stop()
			pass(59 * time.Second)
			if n.runtime.alive() || n.runtime.called("RunSandbox") > 0 {
				t.Error("started before the victims have ended")
			}
			f(t, n)
		})
	}
	t.Run("time is up", func(t *testing.T) {
		waiting(t, func(t *testing.T, n *testNode) {
			if pass(3 * time.Second); !n.runtime.alive() {
				t.Error("does not run")
			}
		})
	})
	t.Run("others have ended", func(t *testing.T) {
		waiting(t, func(t *testing.T, n *testNode) {
			n.mu.Lock()
			n.room = time.Time{}
			n.mu.Unlock()
			n.pool.Wake(n.runtime.pod.UID)
			if synctest.Wait(); !n.runtime.alive() {
				t.Error("does not run")
			}
		})
	})
	t.Run("deleted", func(t *testing.T) {
		waiting(t, func(t *testing.T, n *testNode) {
			n.remove(30, false)
			if synctest.Wait(); !n.deleted {
				t.Error("is not let go")
			}
		})
	})
}

// TestRestartContinuesPreemption checks that a restarted kubelet ends a pod that an earlier kubelet
// process began to preempt, and does not restart any of the pod's containers.
func TestRestartContinuesPreemption(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a", "b")
	n := newTestNode(t, pod)
	synctest.Test(t, func(t *testing.T) {
		n.start()
		pass(time.Second)
		n.stop()
		// As if the kubelet had been killed after it had stopped one of the two containers.
		n.runtime.die(n.runtime.running("b"), 143)
		n.mu.Lock()
		n.doomed = &status.Verdict{Phase: v1.PodFailed, Reason: "Preempting", Message: "why", Disruption: true}
		n.mu.Unlock()
		n.start()
		defer n.stop()
		pass(time.Minute)
		s := n.status()
		if n.runtime.alive() || s.Phase != v1.PodFailed || s.Reason != "Preempting" || n.runtime.started["b"] != 1 {
			t.Errorf("alive %t, %s %s, started %v", n.runtime.alive(), s.Phase, s.Reason, n.runtime.started)
		}
		if c := n.condition(v1.DisruptionTarget); c == nil || c.Status != v1.ConditionTrue {
			t.Errorf("conditions %+v", s.Conditions)
		}
	})
}
