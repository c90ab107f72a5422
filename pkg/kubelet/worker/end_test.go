// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/status"
)

// endCase is a way in which a pod ends. want lists the expected calls for the pod's containers,
// each with its time and the remaining grace period.
type endCase struct {
	names []string // container names in the format of testPod
	hooks []string // containers with a preStop handler
	hook  time.Duration
	slow  map[string]time.Duration
	grace int64 // grace period in the pod's spec in seconds; zero means 30
	mend  func(pod *v1.Pod)
	end   func(n *testNode) // makes the pod end; if nil, the test deletes the pod with its own grace period
	want  string
}

// endCases check the order of KEP-753: the preStop handlers of all containers run as soon as the
// pod begins to end, and a sidecar is signalled only after the main containers and the sidecars
// that started after it have ended.
var endCases = map[string]endCase{
	"one container": {names: []string{"a"}, want: "0s term a 30s"},
	"a handler": {names: []string{"a"}, hooks: []string{"a"}, hook: 4 * time.Second,
		want: "0s hook a 4s, 4s term a 26s"},
	"handler exceeds the grace period": {
		names: []string{"a"}, hooks: []string{"a"}, hook: time.Minute, grace: 5, want: "0s hook a 1m0s, 5s term a 2s",
	},
	"a sidecar waits": {
		names: []string{"s:s", "a"}, slow: map[string]time.Duration{"a": 20 * time.Second},
		want: "0s term a 30s, 20s term s 10s",
	},
	"a sidecar's handler does not wait": {
		names: []string{"s:s", "a"}, hooks: []string{"s"}, slow: map[string]time.Duration{"a": 20 * time.Second},
		want: "0s hook s 0s, 0s term a 30s, 20s term s 10s",
	},
	"a sidecar's handler takes longer than the others": {
		names: []string{"s:s", "a"}, hooks: []string{"s"}, hook: 12 * time.Second,
		want: "0s hook s 12s, 0s term a 30s, 12s term s 18s",
	},
	"sidecars end in reverse order": {
		names: []string{"s:s", "s:t", "a", "b"}, hooks: []string{"s", "t", "b"}, hook: 2 * time.Second,
		slow: map[string]time.Duration{"a": 5 * time.Second, "b": time.Second, "t": 6 * time.Second, "s": time.Second},
		want: "0s hook b 2s, 0s hook s 2s, 0s hook t 2s, 0s term a 30s, 2s term b 28s, 5s term t 25s, 11s term s 19s",
	},
	"no time left for sidecars": {
		names: []string{"s:s", "s:t", "a"}, hooks: []string{"t"}, grace: 10,
		slow: map[string]time.Duration{"a": time.Hour, "t": time.Hour},
		want: "0s hook t 0s, 0s term a 10s, 10s term s 2s, 10s term t 2s",
	},
	"main container has exited": {
		names: []string{"s:s", "a"}, hooks: []string{"s"}, hook: time.Second,
		mend: func(pod *v1.Pod) { pod.Spec.RestartPolicy = v1.RestartPolicyNever },
		end:  func(n *testNode) { n.runtime.die(n.runtime.running("a"), 0) },
		want: "0s hook s 1s, 1s term s 29s",
	},
	"init container does not delay a sidecar": {
		names: []string{"s:s", "i:x", "a"}, slow: map[string]time.Duration{"x": 20 * time.Second},
		want: "0s term s 30s, 0s term x 30s",
	},
	"ephemeral container does not delay a sidecar": {
		names: []string{"s:s", "a"}, slow: map[string]time.Duration{"e": time.Hour},
		mend: func(pod *v1.Pod) {
			pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "img"}}}
		},
		want: "0s term a 30s, 0s term e 30s, 0s term s 30s",
	},
	"deleted again with a shorter grace period": {
		names: []string{"s:s", "a"}, hooks: []string{"s"}, slow: map[string]time.Duration{"a": time.Hour},
		end: func(n *testNode) {
			n.remove(30, false)
			pass(5 * time.Second)
			n.remove(3, false)
		},
		want: "0s hook s 0s, 0s term a 30s, 5s term a 3s, 8s term s 2s",
	},
	"deleted again with a shorter grace period during a handler": {
		names: []string{"s:s", "a"}, hooks: []string{"s", "a"}, hook: time.Minute,
		end: func(n *testNode) {
			n.remove(30, false)
			pass(5 * time.Second)
			n.remove(3, false)
		},
		want: "0s hook a 1m0s, 0s hook s 1m0s, 8s term a 2s, 8s term s 2s",
	},
	"evicted": {
		names: []string{"s:s", "a"}, hooks: []string{"s"}, slow: map[string]time.Duration{"a": time.Hour},
		end:  func(n *testNode) { n.pool.Evict("u", status.Verdict{Phase: v1.PodFailed, Reason: "Evicted"}, 4) },
		want: "0s hook s 0s, 0s term a 4s, 4s term s 2s",
	},
	"activeDeadlineSeconds exceeded": {
		names: []string{"s:s", "a"}, hooks: []string{"s"}, slow: map[string]time.Duration{"a": 3 * time.Second},
		mend: func(pod *v1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(60)) },
		end: func(n *testNode) {
			n.mu.Lock()
			pod := n.api // this version of the pod has a start time in its status
			n.mu.Unlock()
			n.pool.Set(pod)
		},
		want: "50s hook s 0s, 50s term a 30s, 53s term s 27s",
	},
	"grace period 0": {names: []string{"a"}, hooks: []string{"a"}, hook: time.Minute, grace: -1,
		want: "0s hook a 1m0s, 1s term a 2s"},
}

// TestEnd checks the order and times of the calls that end a pod's containers, for each of
// endCases.
func TestEnd(t *testing.T) {
	for name, c := range endCases {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways, c.names...)
			grace := max(c.grace, 0)
			if c.grace == 0 {
				grace = 30
			}
			pod.Spec.TerminationGracePeriodSeconds = &grace
			for _, h := range c.hooks {
				preStop(pod, h)
			}
			if c.mend != nil {
				c.mend(pod)
			}
			bubble(t, pod, func(t *testing.T, n *testNode) {
				n.runtime.mu.Lock()
				for name, d := range c.slow {
					n.runtime.slow[name] = d
				}
				n.runtime.mu.Unlock()
				n.mu.Lock()
				n.hook = c.hook
				n.mu.Unlock()
				pass(10 * time.Second)
				n.runtime.mu.Lock()
				n.runtime.mark = n.runtime.clock.Now()
				n.runtime.mu.Unlock()
				if c.end == nil {
					n.remove(grace, false)
				} else {
					c.end(n)
				}
				pass(2 * time.Minute)
				if got := n.runtime.timeline(); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				if n.runtime.alive() {
					t.Error("a container still runs")
				}
			})
		})
	}
}

// TestSandboxLost checks that, if a pod's sandbox is no longer ready, its containers are stopped in
// the same order as when a pod ends, before the sandbox is replaced.
func TestSandboxLost(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "s:s", "a")
	preStop(pod, "s")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		pass(10 * time.Second)
		n.runtime.mu.Lock()
		n.runtime.slow["a"] = 5 * time.Second
		n.runtime.mark = n.runtime.clock.Now()
		n.runtime.boxes[0].Ready = false
		n.runtime.changed()
		n.runtime.mu.Unlock()
		pass(time.Minute)
		if got, want := n.runtime.timeline(), "0s hook s 0s, 0s term a 30s, 5s term s 25s"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := n.countEvents("SandboxChanged"); got != 1 {
			t.Errorf("%d events of the sandbox", got)
		}
		if n.runtime.running("s") == "" || n.runtime.running("a") == "" {
			t.Error("the pod does not run in its new sandbox")
		}
	})
}

// TestEndOfAnEpoch checks that, when all containers must restart, the running ones are stopped with
// the shortest grace period and without their preStop handlers, as in Kubernetes.
func TestEndOfAnEpoch(t *testing.T) {
	pod := testPod(v1.RestartPolicyNever, "a", "b")
	restartAll(pod, "a")
	preStop(pod, "b")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.runtime.mu.Lock()
		n.runtime.mark = n.runtime.clock.Now()
		n.runtime.mu.Unlock()
		n.runtime.die(n.runtime.running("a"), 42)
		pass(time.Minute)
		if got, want := n.runtime.timeline(), "0s term b 2s"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestNoLivenessFailureWhileEnding checks that no failed liveness probes are reported for a
// container that is being stopped, while its readiness probes continue until it has exited.
func TestNoLivenessFailureWhileEnding(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	liveness(pod, "a")
	readiness(pod, "a")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.runtime.mu.Lock()
		n.runtime.slow["a"] = time.Hour
		n.runtime.mu.Unlock()
		pass(5 * time.Second)
		n.remove(30, false)
		n.fails("a", true)
		pass(10 * time.Second)
		if got := n.countEvents("Unhealthy a Liveness"); got != 0 {
			t.Errorf("%d events of the liveness probe", got)
		}
		if n.ready("a") {
			t.Error("still ready")
		}
	})
}
