// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// probeOf returns a probe with a period of 10 s, so that shortly after a restart of the kubelet
// there is no result yet.
func probeOf(what string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{what}}},
		PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1,
	}
}

// restartCases are pods whose status must not change when the kubelet restarts, as KEP-4781
// requires.
var restartCases = map[string]struct {
	names  []string
	mend   func(pod *v1.Pod)
	before func(n *testNode) // called before the kubelet stops
}{
	"no probes": {names: []string{"a"}},
	"every probe": {names: []string{"i:x", "s:s", "a", "b"}, mend: func(pod *v1.Pod) {
		for _, name := range []string{"s", "a"} {
			c := specIn(pod, name)
			c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = probeOf("startup"), probeOf("liveness"), probeOf("readiness")
			c.Ports = []v1.ContainerPort{{ContainerPort: 80}}
		}
	}},
	"not ready": {names: []string{"a", "b"},
		mend:   func(pod *v1.Pod) { specIn(pod, "a").ReadinessProbe = probeOf("readiness") },
		before: func(n *testNode) { n.fails("a", true) }},
	"not started": {names: []string{"a", "b"}, mend: func(pod *v1.Pod) {
		c := specIn(pod, "a")
		c.StartupProbe, c.ReadinessProbe = probeOf("startup"), probeOf("readiness")
		c.StartupProbe.InitialDelaySeconds = 3600
	}},
	"restarted and ended containers": {names: []string{"a", "b"}, mend: func(pod *v1.Pod) {
		pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		specIn(pod, "a").ReadinessProbe = probeOf("readiness")
	}, before: func(n *testNode) {
		n.runtime.die(n.runtime.running("a"), 1)
		n.runtime.die(n.runtime.running("b"), 0)
	}},
	"resources": {names: []string{"a"}, mend: func(pod *v1.Pod) {
		specIn(pod, "a").Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	}},
	"an ephemeral container": {names: []string{"a"}, mend: func(pod *v1.Pod) {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "img"}}}
	}, before: func(n *testNode) { n.runtime.die(n.runtime.running("e"), 3) }},
	"a pod that ends": {names: []string{"s:s", "a"}, mend: func(pod *v1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(3600))
		for _, name := range []string{"s", "a"} {
			c := specIn(pod, name)
			c.StartupProbe, c.ReadinessProbe = probeOf("startup"), probeOf("readiness")
		}
	}, before: func(n *testNode) {
		n.runtime.mu.Lock()
		n.runtime.slow["a"] = time.Hour
		n.runtime.mu.Unlock()
		n.remove(3600, false)
	}},
	"a pod that has ended": {names: []string{"a"},
		mend:   func(pod *v1.Pod) { pod.Spec.RestartPolicy = v1.RestartPolicyNever },
		before: func(n *testNode) { n.runtime.die(n.runtime.running("a"), 3) }},
}

// fails makes the probes of a container fail if fails is true, and succeed if it is false.
func (n *testNode) fails(name string, fails bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sick[name] = fails
}

// TestStatusSurvivesRestart checks that the restarted kubelet never writes a status that differs
// from the one before the restart.
func TestStatusSurvivesRestart(t *testing.T) {
	for name, c := range restartCases {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways, c.names...)
			pod.Generation = 3
			if c.mend != nil {
				c.mend(pod)
			}
			n := newTestNode(t, pod)
			synctest.Test(t, func(t *testing.T) {
				n.start()
				pass(5 * time.Second)
				n.runtime.die(n.runtime.running("x"), 0)
				pass(time.Minute)
				if c.before != nil {
					c.before(n)
				}
				pass(time.Minute)
				n.stop()
				n.mu.Lock()
				before := n.api.Status
				n.written = nil
				n.mu.Unlock()
				n.start()
				defer n.stop()
				synctest.Wait()
				for range 20 {
					pass(time.Second)
				}
				n.mu.Lock()
				defer n.mu.Unlock()
				for _, s := range n.written {
					if !equality.Semantic.DeepEqual(before, s) {
						x, _ := json.Marshal(before)
						y, _ := json.Marshal(s)
						t.Fatalf("status before\n%s\nand after\n%s", x, y)
					}
				}
			})
		})
	}
}

// TestProbesContinueAfterRestart checks that the first probe after a restart replaces the result
// that the kubelet read from the API, and that a startup probe that has succeeded does not run
// again.
func TestProbesContinueAfterRestart(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	c := specIn(pod, "a")
	c.StartupProbe, c.ReadinessProbe = probeOf("startup"), probeOf("readiness")
	c.StartupProbe.FailureThreshold = 1
	bubble(t, pod, func(t *testing.T, n *testNode) {
		pass(time.Minute)
		if !n.ready("a") {
			t.Fatal("not ready at first")
		}
		n.stop()
		n.fails("a", true)
		n.start()
		pass(15 * time.Second)
		if !n.ready("a") {
			t.Error("not ready before the probe has failed three times")
		}
		pass(time.Minute)
		if n.ready("a") || n.runtime.started["a"] != 1 {
			t.Errorf("ready: %t, started %d times", n.ready("a"), n.runtime.started["a"])
		}
		n.stop()
		n.start()
		synctest.Wait()
		if n.ready("a") {
			t.Error("ready after a restart, without an answer")
		}
		n.fails("a", false)
		pass(time.Minute)
		if !n.ready("a") {
			t.Error("not ready though the probe succeeds")
		}
	})
}

// TestNewRunHasNoResults checks that a container that has restarted does not keep the probe results
// of its previous run.
func TestNewRunHasNoResults(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	specIn(pod, "a").ReadinessProbe = probeOf("readiness")
	specIn(pod, "a").ReadinessProbe.InitialDelaySeconds = 5
	bubble(t, pod, func(t *testing.T, n *testNode) {
		pass(time.Minute)
		n.stop()
		n.runtime.changed = func() {}
		n.runtime.die(n.runtime.running("a"), 1)
		n.start()
		pass(time.Second)
		if n.ready("a") || n.runtime.started["a"] != 2 {
			t.Errorf("ready: %t, started %d times", n.ready("a"), n.runtime.started["a"])
		}
		pass(10 * time.Second)
		if !n.ready("a") {
			t.Error("not ready though the probe succeeds")
		}
	})
}

// TestStaticPodIsResumed checks that the probe results of a static pod are restored from its mirror
// pod, although the kubelet reads the mirror pod only after it has started the static pod's worker.
func TestStaticPodIsResumed(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "s:s", "a")
	for _, name := range []string{"s", "a"} {
		c := specIn(pod, name)
		c.StartupProbe, c.ReadinessProbe = probeOf("startup"), probeOf("readiness")
	}
	bubble(t, pod, func(t *testing.T, n *testNode) {
		pass(time.Minute)
		n.stop()
		n.fails("a", true)
		n.fails("s", true)
		n.mu.Lock()
		before := n.api.Status
		n.api = n.api.DeepCopy()
		n.api.Status = v1.PodStatus{}
		n.mu.Unlock()
		n.start()
		pass(2 * time.Second)
		n.mu.Lock()
		n.statuses.last, n.written = before.DeepCopy(), nil
		n.mu.Unlock()
		n.pool.Resume("u", before)
		pass(5 * time.Second)
		if !equality.Semantic.DeepEqual(before, n.status()) {
			t.Errorf("status before\n%+v\nand after\n%+v", before, n.status())
		}
		pass(time.Minute)
		if n.ready("a") || n.runtime.started["a"] != 1 || n.runtime.started["s"] != 1 {
			t.Errorf("ready: %t, started %v", n.ready("a"), n.runtime.started)
		}
	})
}
