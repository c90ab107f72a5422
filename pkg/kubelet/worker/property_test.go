// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// step is an event or a fault that happens to the pod, and how much time passes after it.
type step struct {
	what  string
	name  string // name of a container or of a call
	n     int64  // exit code, number of failures or grace period
	after time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s %s %d, %v", s.what, s.name, s.n, s.after) }

func drawPod(t *rapid.T) *v1.Pod {
	policy := rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure,
		v1.RestartPolicyNever}).Draw(t, "policy")
	names := []string{"a"}
	for i, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"i:", "s:", ""}), 0, 4).Draw(t, "containers") {
		names = append(names, fmt.Sprint(kind, "x", i))
	}
	pod := testPod(policy, names...)
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if c.RestartPolicy != nil || len(pod.Spec.InitContainers) == 0 || &list[0] != &pod.Spec.InitContainers[0] {
				if rapid.Bool().Draw(t, "liveness") {
					liveness(pod, c.Name)
				}
				if rapid.Bool().Draw(t, "preStop") {
					preStop(pod, c.Name)
				}
			}
		}
	}
	if rapid.Bool().Draw(t, "restartAll") {
		restartAll(pod, rapid.SampledFrom(namesOf(pod)).Draw(t, "by"))
	}
	return pod
}

func namesOf(pod *v1.Pod) []string {
	var out []string
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, list[i].Name)
		}
	}
	return out
}

func drawSteps(t *rapid.T, pod *v1.Pod) []step {
	names := namesOf(pod)
	calls := []string{"Pod", "RunSandbox", "StopSandbox", "RemoveSandbox", "CreateContainer", "StartContainer",
		"StopContainer", "RemoveContainer", "Prepare", "Teardown", "Remove"}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		s := step{what: rapid.SampledFrom([]string{"exit", "exit", "exit", "fail", "fail", "sandbox", "restart",
			"sick", "well", "delete", "force", "wake", "clock"}).Draw(t, "what")}
		switch s.what {
		case "exit":
			s.name, s.n = rapid.SampledFrom(names).Draw(t, "container"), rapid.SampledFrom([]int64{0, 1, 42}).Draw(t, "code")
		case "sick", "well":
			s.name = rapid.SampledFrom(names).Draw(t, "container")
		case "fail":
			s.name, s.n = rapid.SampledFrom(calls).Draw(t, "call"), rapid.Int64Range(1, 3).Draw(t, "times")
		case "delete":
			s.n = rapid.SampledFrom([]int64{0, 1, 5, 30}).Draw(t, "grace")
		case "clock":
			s.n = rapid.SampledFrom([]int64{-3600, -60, 60, 3600}).Draw(t, "seconds")
		}
		s.after = rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 7 * time.Second,
			time.Minute}).Draw(t, "after")
		return s
	}), 0, 25).Draw(t, "steps")
}

func (n *testNode) do(s step) {
	switch s.what {
	case "exit":
		n.runtime.die(n.runtime.running(s.name), int32(s.n))
	case "fail":
		n.runtime.mu.Lock()
		n.runtime.failures[s.name] += int(s.n)
		n.runtime.mu.Unlock()
	case "sandbox":
		n.runtime.mu.Lock()
		for i := range n.runtime.boxes {
			n.runtime.boxes[i].Ready = false
		}
		for i := range n.runtime.runs {
			n.runtime.exit(&n.runtime.runs[i], 137)
		}
		n.runtime.changed()
		n.runtime.mu.Unlock()
	case "restart":
		n.stop()
		n.start()
	case "sick", "well":
		n.mu.Lock()
		n.sick[s.name] = s.what == "sick"
		n.mu.Unlock()
	case "delete":
		n.remove(s.n, false)
	case "force":
		n.remove(0, true)
	case "wake":
		n.pool.WakeAll()
	case "clock": // set the clock of the runtime forward or back
		n.runtime.mu.Lock()
		n.runtime.skew += time.Duration(s.n) * time.Second
		n.runtime.mu.Unlock()
	}
}

// settle ends all faults and waits until the pod is stable. It then returns a description of what
// is wrong with the pod, or "".
func (n *testNode) settle() string {
	n.mu.Lock()
	n.sick = map[string]bool{}
	n.mu.Unlock()
	n.runtime.mu.Lock()
	n.runtime.failures = map[string]int{}
	n.runtime.mu.Unlock()
	// Let init containers succeed, and wait longer than the longest back-off delay.
	for range 40 {
		for i := range n.runtime.pod.Spec.InitContainers {
			if c := &n.runtime.pod.Spec.InitContainers[i]; !cri.Sidecar(c) {
				n.runtime.die(n.runtime.running(c.Name), 0)
			}
		}
		pass(time.Minute)
	}
	n.mu.Lock()
	pod := n.api
	n.mu.Unlock()
	if pod == nil || pod.DeletionTimestamp != nil {
		switch {
		case pod != nil:
			return "the deleted pod stays in the API"
		case n.runtime.alive():
			return "a container of a pod that is gone runs"
		case n.pool.HasWorker(n.runtime.pod.UID):
			return "the worker of a pod that is gone does not end"
		}
		return ""
	}
	if p := pod.Status.Phase; p == v1.PodSucceeded || p == v1.PodFailed {
		if n.runtime.alive() {
			return fmt.Sprintf("a container of a pod that is %s runs", p)
		}
		if pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
			return fmt.Sprintf("the pod is %s, and restartPolicy is Always", p)
		}
		return ""
	}
	for _, name := range namesOf(n.runtime.pod) {
		if i := initIndex(n.runtime.pod, name); i >= 0 && !cri.Sidecar(&n.runtime.pod.Spec.InitContainers[i]) ||
			n.runtime.running(name) != "" {
			continue
		}
		if last := n.last(name); last == nil || pod.Spec.RestartPolicy == v1.RestartPolicyAlways ||
			pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && last.ExitCode != 0 {
			return fmt.Sprintf("%s does not run in a pod that is %s", name, pod.Status.Phase)
		}
	}
	if pod.Status.Phase != v1.PodRunning {
		return fmt.Sprintf("all that should run does, and the pod is %s", pod.Status.Phase)
	}
	return ""
}

// last returns the newest run of a container, or nil if it has never run.
func (n *testNode) last(name string) *cri.Container {
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	for i := len(n.runtime.runs) - 1; i >= 0; i-- {
		if c := n.runtime.runs[i]; c.Name == name {
			return &c
		}
	}
	return nil
}

// TestRandomFaults checks with random sequences of events and faults that the worker never breaks
// the rules that fakeRuntime checks, and that the pod reaches the right state after the faults have
// ended.
func TestRandomFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pod := drawPod(rt)
		steps := drawSteps(rt, pod)
		n := newTestNode(t, pod)
		n.hook = 3 * time.Second
		for i, name := range namesOf(pod) {
			n.runtime.slow[name] = time.Duration(i%3) * 4 * time.Second
		}
		came := ""
		synctest.Test(t, func(*testing.T) {
			n.start()
			defer n.stop()
			for _, s := range steps {
				n.do(s)
				if s.after > 0 {
					pass(s.after)
				}
			}
			came = n.settle()
		})
		wrong := slices.Clone(n.runtime.wrong)
		if came != "" {
			wrong = append(wrong, came)
		}
		if len(wrong) > 0 {
			var told []string
			for _, s := range steps {
				told = append(told, s.String())
			}
			rt.Fatalf("%s\n%s", strings.Join(wrong, "\n"), strings.Join(told, "\n"))
		}
	})
}
