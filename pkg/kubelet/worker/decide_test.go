// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// testPod returns a pod with the given containers. The prefix "i:" of a name makes the container an
// init container, "s:" a sidecar (a restartable init container).
func testPod(policy v1.RestartPolicy, names ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: v1.PodSpec{RestartPolicy: policy}}
	always := v1.ContainerRestartPolicyAlways
	for _, n := range names {
		kind, name, special := strings.Cut(n, ":")
		if !special {
			name = n
		}
		c := v1.Container{Name: name, Image: "img"}
		switch {
		case special && kind == "s":
			c.RestartPolicy = &always
			fallthrough
		case special:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// seen returns the state of a pod in the runtime. Each word is the state of a container, such as
// "a=running", "a=exit0" or "a=created". The word "down" makes the sandbox not ready, and "none"
// returns a pod without sandboxes and containers.
func seen(words ...string) *cri.Pod {
	p := &cri.Pod{Sandboxes: []cri.Sandbox{{ID: "box", Ready: true, Attempt: 3}}}
	for _, w := range words {
		if w == "none" {
			return &cri.Pod{}
		}
		if w == "down" {
			p.Sandboxes[0].Ready = false
			continue
		}
		name, state, _ := strings.Cut(w, "=")
		c := cri.Container{ID: name, Name: name, SandboxID: "box", FinishedAt: now,
			Hash: cri.Hash(&v1.Container{Name: name, Image: "img"})}
		switch {
		case state == "running":
			c.State = cri.Running
		case state == "created":
			c.State = cri.Created
		default:
			c.State = cri.Exited
			_, _ = fmt.Sscanf(state, "exit%d", &c.ExitCode)
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// describePlan formats a plan as text, to compare it in tests.
func describePlan(p Plan) string {
	var out []string
	if p.Done {
		out = append(out, "done")
	}
	if p.Sandbox {
		out = append(out, fmt.Sprint("sandbox", p.Attempt))
	}
	for _, s := range p.Stop {
		out = append(out, "stop "+s.Spec.Name)
	}
	for _, c := range p.Start {
		out = append(out, "start "+c.Name)
	}
	for name := range p.Waiting {
		out = append(out, name+" waits")
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		seen   *cri.Pod
		unborn string // name of a container whose startup probe has not succeeded
		failed string // name of a container whose liveness probe failed
		want   string
	}{
		{name: "new pod", pod: testPod("Always", "a", "b"), seen: seen("none"), want: "sandbox0, start a, start b"},
		{name: "new pod with init containers", pod: testPod("Always", "i:x", "i:y", "a"), seen: seen("none"),
			want: "sandbox0, start x"},
		{name: "all run", pod: testPod("Always", "a", "b"), seen: seen("a=running", "b=running"), want: ""},
		{name: "first init runs", pod: testPod("Always", "i:x", "i:y", "a"), seen: seen("x=running"), want: ""},
		{name: "second init follows", pod: testPod("Always", "i:x", "i:y", "a"), seen: seen("x=exit0"), want: "start y"},
		{name: "init containers done", pod: testPod("Always", "i:x", "i:y", "a"),
			seen: seen("x=exit0", "y=exit0"), want: "start a"},
		{name: "init containers not repeated", pod: testPod("Always", "i:x", "a", "b"), seen: seen("a=running"),
			want: "start b"},
		{name: "init fails for good", pod: testPod("Never", "i:x", "a"), seen: seen("x=exit1"), want: "done"},
		{name: "init retried", pod: testPod("OnFailure", "i:x", "a"), seen: seen("x=exit1"), want: "start x"},
		{name: "exited, policy Always", pod: testPod("Always", "a"), seen: seen("a=exit0"), want: "start a"},
		{name: "exited, policy OnFailure", pod: testPod("OnFailure", "a", "b"),
			seen: seen("a=exit0", "b=exit2"), want: "start b"},
		{name: "all exited with 0", pod: testPod("OnFailure", "a", "b"), seen: seen("a=exit0", "b=exit0"), want: "done"},
		{name: "exited, policy Never", pod: testPod("Never", "a", "b"), seen: seen("a=exit1", "b=running"), want: ""},
		{name: "all exited, policy Never", pod: testPod("Never", "a"), seen: seen("a=exit1"), want: "done"},
		{name: "finished pod gets no new sandbox", pod: testPod("Never", "a"), seen: seen("down", "a=exit1"), want: "done"},
		{name: "sandbox lost", pod: testPod("Always", "i:x", "a"), seen: seen("down", "x=exit0", "a=exit137"),
			want: "sandbox4, start x"},
		{name: "sandbox lost, one container finished", pod: testPod("OnFailure", "a", "b"),
			seen: seen("down", "a=exit0", "b=exit137"), want: "sandbox4, start b"},
		{name: "sidecar first", pod: testPod("Always", "s:x", "i:y", "a"), seen: seen(), want: "start x"},
		{name: "sidecar has not started", pod: testPod("Always", "s:x", "a"), seen: seen("x=running"), unborn: "x", want: ""},
		{name: "sidecar has started", pod: testPod("Always", "s:x", "i:y", "a"), seen: seen("x=running"), want: "start y"},
		{name: "sidecar ended beside a running container", pod: testPod("Never", "s:x", "a", "b"),
			seen: seen("x=exit0", "a=running"), want: "start x, start b"},
		{name: "main containers finished, sidecar running", pod: testPod("Never", "s:x", "a"),
			seen: seen("x=running", "a=exit0"), want: "done"},
		{name: "sidecar lost before the others started", pod: testPod("Never", "s:x", "i:y", "a"),
			seen: seen("x=exit1", "y=running"), want: "start x"},
		{name: "sidecar lost after an init container is done", pod: testPod("OnFailure", "s:x", "i:y", "a"),
			seen: seen("x=exit0", "y=exit0"), want: "start x"},
		{name: "restarting sidecar does not block others", pod: testPod("Always", "s:x", "a", "b"),
			seen: seen("x=running", "a=running"), unborn: "x", want: "start b"},
		{name: "startup of a sidecar failed", pod: testPod("Never", "s:x", "a"), seen: seen("x=running"),
			unborn: "x", failed: "x", want: "stop x"},
		{name: "liveness of a sidecar failed beside a running container", pod: testPod("Never", "s:x", "a"),
			seen: seen("x=running", "a=running"), failed: "x", want: "stop x"},
		{name: "second sidecar waits for the first", pod: testPod("Always", "s:x", "s:y", "a"),
			seen: seen("x=running"), unborn: "x", want: ""},
		{name: "sandbox lost with a sidecar", pod: testPod("Never", "s:x", "i:y", "a"),
			seen: seen("down", "x=exit137", "y=exit0"), want: "sandbox4, start x"},
		{name: "sandbox lost, all containers finished", pod: testPod("OnFailure", "s:x", "a"),
			seen: seen("down", "x=exit137", "a=exit0"), want: "done"},
		{name: "sandbox lost, policy Never", pod: testPod("Never", "a", "b"),
			seen: seen("down", "a=exit137", "b=exit137"), want: "done"},
		{name: "init fails for good beside a sidecar", pod: testPod("Never", "s:x", "i:y", "a"),
			seen: seen("x=running", "y=exit1"), want: "done"},
		{name: "liveness failed", pod: testPod("Always", "a", "b"), seen: seen("a=running", "b=running"),
			failed: "b", want: "stop b"},
		{name: "created but not started", pod: testPod("Always", "a"), seen: seen("a=created"), want: "start a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := Decide(Facts{
				Pod: tc.pod, Seen: tc.seen, Now: now,
				Started: func(id string) bool { return id != tc.unborn },
				Failed:  func(id string) (prober.Kind, bool) { return prober.Liveness, id == tc.failed },
				Backoff: func(*v1.Container) *restart.Backoff { return &restart.Backoff{} },
			})
			if got := describePlan(plan); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestBackoffIsWaitedOut(t *testing.T) {
	b := &restart.Backoff{}
	b.Next(now, now)
	facts := Facts{
		Pod: testPod("Always", "a"), Seen: seen("a=exit1"), Now: now.Add(time.Second),
		Started: func(string) bool { return true }, Failed: func(string) (prober.Kind, bool) { return "", false },
		Backoff: func(*v1.Container) *restart.Backoff { return b },
	}
	plan := Decide(facts)
	if want := "back-off 10s restarting failed container=a pod=p_ns(u)"; plan.Waiting["a"].Message != want ||
		plan.Waiting["a"].Reason != "CrashLoopBackOff" {
		t.Errorf("waiting: %+v, want %q", plan.Waiting["a"], want)
	}
	if !plan.Retry.Equal(now.Add(10 * time.Second)) {
		t.Errorf("retry at %v", plan.Retry)
	}
	facts.Now = now.Add(10 * time.Second)
	if got := describePlan(Decide(facts)); got != "start a" {
		t.Errorf("after the back-off: %q", got)
	}
}

func TestChangedImageRestarts(t *testing.T) {
	pod := testPod("Never", "a")
	pod.Spec.Containers[0].Image = "other"
	for state, want := range map[string]string{"a=running": "stop a", "a=exit137": "start a"} {
		plan := Decide(Facts{
			Pod: pod, Seen: seen(state), Now: now, Started: func(string) bool { return true },
			Failed:  func(string) (prober.Kind, bool) { return "", false },
			Backoff: func(*v1.Container) *restart.Backoff { return &restart.Backoff{} },
		})
		if got := describePlan(plan); got != want {
			t.Errorf("%s: got %q, want %q", state, got, want)
		}
	}
}

// TestNewImageHasNoBackoff checks that a container whose image has changed does not wait for the
// back-off delay of its old image.
func TestNewImageHasNoBackoff(t *testing.T) {
	w := newWorker(&Pool{}, "u")
	old := w.backoff(&v1.Container{Name: "c", Image: "old"})
	for range 5 {
		old.Next(time.Time{}, time.Time{})
	}
	if again := w.backoff(&v1.Container{Name: "c", Image: "old"}); again != old {
		t.Error("forgotten at once")
	}
	if fresh := w.backoff(&v1.Container{Name: "c", Image: "new"}); *fresh != (restart.Backoff{}) {
		t.Errorf("still waits %s", fresh.Delay())
	}
}

// TestMaxBackoff checks that back-off delays do not exceed the maximum in the node's configuration.
func TestMaxBackoff(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{0: 40 * time.Second,
		15 * time.Second: 15 * time.Second, time.Second: time.Second} {
		b := newWorker(&Pool{cfg: Config{Settings: Settings{MaxBackoff: most}}}, "u").backoff(&v1.Container{Name: "a"})
		for range 3 {
			b.Next(time.Time{}, time.Time{})
		}
		if b.Delay() != want {
			t.Errorf("at most %v: %v after three starts", most, b.Delay())
		}
	}
}
