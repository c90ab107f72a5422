// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// restartAll adds a rule to the named container: if it exits with code 42, all containers of the
// pod restart.
func restartAll(pod *v1.Pod, name string) {
	specIn(pod, name).RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
}

// TestRestartAll checks that all containers of a pod restart in order when a container exits with
// the exit code of its RestartAllContainers rule, even if the kubelet restarts meanwhile and the
// pod's restart policy is Never.
func TestRestartAll(t *testing.T) {
	pod := testPod(v1.RestartPolicyNever, "i:x", "s:y", "a", "b")
	restartAll(pod, "a")
	preStop(pod, "b")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.runtime.die(n.runtime.running("x"), 0)
		pass(time.Second)
		old := n.runtime.running("b")
		n.runtime.mu.Lock()
		n.runtime.failures["StopContainer"] = 2
		n.runtime.mu.Unlock()
		n.runtime.die(n.runtime.running("a"), 42)
		synctest.Wait()
		if c := n.condition(v1.AllContainersRestarting); c == nil || c.Status != v1.ConditionTrue ||
			c.Reason != "RestartAllContainersStarted" {
			t.Errorf("condition %+v", c)
		}
		if p := n.status().Phase; p != v1.PodRunning {
			t.Errorf("the pod is %s", p)
		}
		n.stop()
		n.start()
		pass(10 * time.Second)
		if n.runtime.running("x") == "" || n.runtime.running("a") != "" || n.runtime.running("b") != "" {
			t.Fatalf("x %q, a %q, b %q", n.runtime.running("x"), n.runtime.running("a"), n.runtime.running("b"))
		}
		n.runtime.die(n.runtime.running("x"), 0)
		pass(time.Minute)
		for name, want := range map[string]int{"x": 2, "y": 2, "a": 2, "b": 2} {
			if got := n.runtime.started[name]; got != want {
				t.Errorf("%s was started %d times, want %d", name, got, want)
			}
		}
		if n.runtime.running("b") == old || len(n.hooks) != 0 {
			t.Errorf("b runs as %q, handlers %v", n.runtime.running("b"), n.hooks)
		}
		if c := n.condition(v1.AllContainersRestarting); c == nil || c.Status != v1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
		// Exit code 1 does not match the rule, so the pod fails.
		n.runtime.die(n.runtime.running("a"), 1)
		n.runtime.die(n.runtime.running("b"), 0)
		pass(time.Minute)
		if p := n.status().Phase; p != v1.PodFailed || n.runtime.alive() {
			t.Errorf("the pod is %s, alive: %t", p, n.runtime.alive())
		}
	})
}

// TestRestartAllDuringStart checks a container that exits with the exit code of its rule while the
// worker is starting the next container. The next container must restart too.
func TestRestartAllDuringStart(t *testing.T) {
	pod := testPod(v1.RestartPolicyNever, "i:x", "a", "b")
	restartAll(pod, "a")
	n := newTestNode(t, pod)
	n.runtime.slow["pull b"] = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		n.start()
		defer n.stop()
		synctest.Wait()
		n.runtime.die(n.runtime.running("x"), 0)
		pass(time.Second)
		n.runtime.die(n.runtime.running("a"), 42)
		pass(20 * time.Second)
		if n.runtime.running("x") == "" || n.runtime.running("b") != "" {
			t.Fatalf("x %q, b %q", n.runtime.running("x"), n.runtime.running("b"))
		}
		n.runtime.die(n.runtime.running("x"), 0)
		pass(time.Minute)
		if n.runtime.running("a") == "" || n.runtime.running("b") == "" || n.runtime.started["b"] != 2 {
			t.Errorf("a %q, b %q, started %v", n.runtime.running("a"), n.runtime.running("b"), n.runtime.started)
		}
	})
	for _, w := range n.runtime.wrong {
		t.Error(w)
	}
}

// TestRestartAllAfterTheClockWasSetBack checks that each exit with the rule's exit code restarts
// all containers even if the clock was set back. It also checks that nothing restarts if exited
// runs are removed from the runtime.
func TestRestartAllAfterTheClockWasSetBack(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a", "b")
	restartAll(pod, "a")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		pass(time.Second)
		for round := range 3 {
			n.do(step{what: "clock", n: -3600})
			n.runtime.die(n.runtime.running("a"), 42)
			pass(2 * time.Minute)
			for name := range map[string]bool{"a": true, "b": true} {
				if n.runtime.running(name) == "" || n.runtime.started[name] != round+2 {
					t.Fatalf("round %d: %s runs as %q and was started %d times", round, name,
						n.runtime.running(name), n.runtime.started[name])
				}
			}
		}
		n.stop()
		a, b := n.runtime.running("a"), n.runtime.running("b")
		n.runtime.mu.Lock()
		n.runtime.runs = slices.DeleteFunc(n.runtime.runs, func(c cri.Container) bool { return c.ID != a && c.ID != b })
		n.runtime.mu.Unlock()
		n.start()
		pass(time.Minute)
		if n.runtime.running("a") != a || n.runtime.running("b") != b {
			t.Errorf("a runs as %q (was %q), b as %q (was %q)", n.runtime.running("a"), a, n.runtime.running("b"), b)
		}
		n.runtime.die(a, 42) // restarts all containers, although the run that began the current epoch was removed
		pass(10 * time.Minute)
		if n.runtime.started["a"] != 5 || n.runtime.started["b"] != 5 {
			t.Errorf("started %v", n.runtime.started)
		}
	})
}
