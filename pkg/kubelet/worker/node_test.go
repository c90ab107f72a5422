// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// testNode runs a kubelet's pool of workers with one pod, a fake runtime and a fake API, in virtual
// time.
type testNode struct {
	runtime  *fakeRuntime
	unlisted atomic.Bool // the kubelet does not know all pods of the node
	dir      string
	log      *slog.Logger

	mu      sync.Mutex
	api     *v1.Pod // the pod in the API; nil after it was deleted
	pool    *Pool
	cancel  context.CancelFunc
	hooks   map[string]int // number of calls of the preStop handler since the kubelet started, by container ID
	hook    time.Duration  // how long each preStop handler takes
	sick    map[string]bool
	events  []string
	given   *allocation.Manager
	deleted bool // the kubelet has deleted the pod from the API
	tracer  trace.Tracer
	traces  *podtrace.Tracer
	metrics *metrics.Pods
	room    time.Time // the time until which the pod waits for preempted pods to end
	doomed  *status.Verdict
	written []v1.PodStatus // all statuses written to the API
	// released has an entry for each call of Release.Release: the length of written at that time.
	released []int

	statuses *fakeStatuses // statuses since the kubelet last started
}

func newTestNode(t *testing.T, pod *v1.Pod) *testNode {
	return &testNode{
		runtime: newFakeRuntime(pod), dir: t.TempDir(), log: slog.New(slog.DiscardHandler), api: pod,
		hooks: map[string]int{}, sick: map[string]bool{},
	}
}

// start starts the kubelet. It adds the pod if the API has it; otherwise it reports the pod in the
// runtime as an orphan.
func (n *testNode) start() {
	ctx, cancel := context.WithCancel(context.Background())
	n.mu.Lock()
	n.cancel, n.hooks = cancel, map[string]int{}
	n.statuses = &fakeStatuses{node: n}
	parts := fakeParts{n.runtime}
	n.pool = NewPool(ctx, NewRegistry(), Config{
		Clock: clock.Real(), Log: n.log,
		Event: func(_ *v1.Pod, container, _, reason, message string) {
			n.note(reason + " " + container + " " + message)
		},
		Parts: Parts{
			Runtime: n.runtime, Volumes: parts, Objects: parts, Images: fakeImages{n.runtime}, Cgroups: parts,
			Devices: fakeDevices{}, Handler: &prober.Handler{Exec: n.exec, Clock: clock.Real()},
		},
		Rules: Rules{
			Status: n.statuses, Allocation: n.allocation(), Preemption: fakePreemption{n}, Placement: fakePlacement{},
			Environment: fakeEnvironment{}, RuntimeState: fakeRuntimeState{}, Release: fakeRelease{n},
		},
		Telemetry: Telemetry{Metrics: n.metrics, Tracer: n.tracer, Traces: n.traces, Observer: fakeObserver{n}},
		Settings: Settings{
			HostIPs: []string{"192.0.2.1"}, RuntimeName: "fake",
			Node:    qos.Node{Memory: 1 << 30, CFSQuota: true, Period: 100 * time.Millisecond},
			RootDir: n.dir, LogRoot: n.dir + "/logs", LinkRoot: n.dir + "/links",
		},
	})
	pool, pod := n.pool, n.api
	n.mu.Unlock()
	n.runtime.changed = func() { go pool.Wake(n.runtime.pod.UID) }
	if pod != nil {
		pool.Set(pod)
	} else {
		n.orphan()
	}
}

// allocation returns the manager of the node's resources. Of the node's 4 CPUs, 3 are granted to
// another pod.
func (n *testNode) allocation() *allocation.Manager {
	other := testPod(v1.RestartPolicyAlways, "o")
	other.UID = "other"
	other.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
	m := allocation.NewManager(allocation.Config{
		Log: n.log, Dir: n.dir, Pods: func() []*v1.Pod { return []*v1.Pod{other} },
		Listed: func() bool { return !n.unlisted.Load() },
		Check: func(pod *v1.Pod, others []*v1.Pod) *allocation.Refusal {
			return allocation.Check(pod, others,
				allocation.Node{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}})
		},
		Freed: func(types.UID) { go n.pool.WakeAll() },
	})
	if r := m.Admit(other); r != nil {
		panic(r.Message)
	}
	n.given = m
	return m
}

// orphan passes the pod to the pool as a pod that only the runtime has, as the kubelet does when it
// lists the runtime.
func (n *testNode) orphan() {
	for n.runtime.pod != nil {
		seen, err := n.runtime.Pod(context.Background(), n.runtime.pod.UID)
		if err == nil {
			if len(seen.Sandboxes) > 0 {
				n.pool.Orphan(seen)
			}
			return
		}
	}
}

// stop stops the kubelet and waits until all workers have ended.
func (n *testNode) stop() {
	n.cancel()
	n.pool.Wait()
}

func (n *testNode) note(event string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, event)
}

// exec answers probes, and counts the calls of each container's preStop handler.
func (n *testNode) exec(ctx context.Context, id string, command []string) (string, int32, error) {
	name := ""
	n.runtime.mu.Lock()
	if c := n.runtime.find(id); c != nil {
		name = c.Name
	}
	n.runtime.mu.Unlock()
	if command[0] != "preStop" {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.sick[name] {
			return "sick", 1, nil
		}
		return "", 0, nil
	}
	n.mu.Lock()
	n.hooks[id]++
	if n.hooks[id] > 1 {
		n.runtime.mu.Lock()
		n.runtime.complainf("preStop of %s runs again", id)
		n.runtime.mu.Unlock()
	}
	wait := n.hook
	n.mu.Unlock()
	n.runtime.mu.Lock()
	n.runtime.note("hook "+name, wait)
	n.runtime.mu.Unlock()
	t := clock.Real().NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return "", 0, ctx.Err()
	case <-t.C():
		return "", 0, nil
	}
}

// remove deletes the pod in the API as a user would: with a grace period, or immediately if force
// is true.
func (n *testNode) remove(grace int64, force bool) {
	n.mu.Lock()
	if n.api == nil {
		n.mu.Unlock()
		return
	}
	if force {
		n.api = nil
		pool := n.pool
		n.mu.Unlock()
		pool.Remove(n.runtime.pod.UID)
		return
	}
	pod := n.api.DeepCopy()
	if pod.DeletionGracePeriodSeconds != nil {
		grace = min(grace, *pod.DeletionGracePeriodSeconds)
	}
	at := metav1.NewTime(clock.Real().Now())
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	n.api = pod
	pool := n.pool
	n.mu.Unlock()
	pool.Set(pod)
}

func (n *testNode) status() v1.PodStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.api == nil {
		return v1.PodStatus{}
	}
	return n.api.Status
}

// fakeStatuses writes each status to the fake API immediately.
type fakeStatuses struct {
	node *testNode
	mu   sync.Mutex
	last *v1.PodStatus
}

func (*fakeStatuses) Observe(*v1.Pod) {}

func (*fakeStatuses) Forget(types.UID) {}

func (s *fakeStatuses) Get(types.UID) (v1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return v1.PodStatus{}, false
	}
	return *s.last.DeepCopy(), true
}

func (s *fakeStatuses) Set(_ *v1.Pod, st v1.PodStatus) {
	s.mu.Lock()
	s.last = &st
	s.mu.Unlock()
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.api == nil {
		return
	}
	pod := n.api.DeepCopy()
	pod.Status = *st.DeepCopy()
	n.api = pod
	n.written = append(n.written, pod.Status)
}

func (s *fakeStatuses) Delete(pod *v1.Pod) {
	n := s.node
	if n.runtime.alive() {
		n.runtime.mu.Lock()
		n.runtime.complainf("the pod leaves the API while a container runs")
		n.runtime.mu.Unlock()
	}
	n.mu.Lock()
	n.api, n.deleted = nil, true
	pool := n.pool
	n.mu.Unlock()
	go pool.Remove(pod.UID)
}

// bubble runs f in virtual time, with a node that is started before f and stopped after it.
func bubble(t *testing.T, pod *v1.Pod, f func(t *testing.T, n *testNode)) {
	t.Helper()
	n := newTestNode(t, pod)
	synctest.Test(t, func(t *testing.T) {
		n.start()
		defer n.stop()
		synctest.Wait()
		f(t, n)
	})
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	for _, w := range n.runtime.wrong {
		t.Error(w)
	}
}

// pass lets virtual time advance by d and waits until all goroutines are idle.
func pass(d time.Duration) {
	t := clock.Real().NewTimer(d)
	<-t.C()
	synctest.Wait()
}

func liveness(pod *v1.Pod, name string) {
	specIn(pod, name).LivenessProbe = &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"liveness"}}},
		PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
	}
}

func readiness(pod *v1.Pod, name string) {
	specIn(pod, name).ReadinessProbe = &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"readiness"}}},
		PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
	}
}

func preStop(pod *v1.Pod, name string) {
	specIn(pod, name).Lifecycle = &v1.Lifecycle{
		PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"preStop"}}}}
}

func specIn(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func (n *testNode) ready(name string) bool {
	for _, c := range n.status().ContainerStatuses {
		if c.Name == name {
			return c.Ready
		}
	}
	return false
}

// TestStopIsRetried checks that the worker keeps trying to stop a container with growing delays,
// with only one Killing event, and that the container restarts after the stop has succeeded.
func TestStopIsRetried(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	liveness(pod, "a")
	bubble(t, pod, func(t *testing.T, n *testNode) {
		n.mu.Lock()
		n.sick["a"] = true
		n.mu.Unlock()
		n.runtime.mu.Lock()
		n.runtime.failures["StopContainer"] = 1 << 30
		n.runtime.mu.Unlock()
		pass(time.Minute)
		n.runtime.mu.Lock()
		tries := n.runtime.calls["StopContainer"]
		n.runtime.failures["StopContainer"] = 0
		n.runtime.mu.Unlock()
		if tries < 3 || tries > 12 {
			t.Errorf("%d tries in a minute", tries)
		}
		n.mu.Lock()
		killing := len(slices.DeleteFunc(slices.Clone(n.events), func(e string) bool { return e[:7] != "Killing" }))
		n.sick["a"] = false
		n.mu.Unlock()
		if killing != 1 {
			t.Errorf("%d events that the container is being killed", killing)
		}
		pass(3 * time.Minute)
		if n.runtime.started["a"] != 2 || n.runtime.running("a") == "" {
			t.Errorf("started %d times, runs %q", n.runtime.started["a"], n.runtime.running("a"))
		}
	})
}

// TestPreStopRunsOnce deletes the pod while the preStop handler of a container with a failed
// liveness probe is running. It checks that the handler is not called again and may finish before
// the container ends.
func TestPreStopRunsOnce(t *testing.T) {
	for name, grace := range map[string]int64{"the same grace": 30, "less grace": 3} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways, "a")
			liveness(pod, "a")
			preStop(pod, "a")
			bubble(t, pod, func(t *testing.T, n *testNode) {
				n.mu.Lock()
				n.hook, n.sick["a"] = 10*time.Second, true
				n.mu.Unlock()
				pass(5 * time.Second)
				n.mu.Lock()
				called := len(n.hooks)
				n.mu.Unlock()
				if called != 1 {
					t.Fatalf("%d handlers are at work", called)
				}
				n.remove(grace, false)
				pass(2 * time.Second)
				if !n.runtime.alive() {
					t.Error("the handler was not waited for")
				}
				pass(10 * time.Second)
				if n.runtime.alive() || !n.deleted {
					t.Errorf("alive: %t, let go: %t", n.runtime.alive(), n.deleted)
				}
			})
		})
	}
}

// TestReadinessWhileBusy checks that the pod's status follows the readiness probes of one container
// while the worker pulls the image of another container or stops it.
func TestReadinessWhileBusy(t *testing.T) {
	t.Run("pull", func(t *testing.T) {
		pod := testPod(v1.RestartPolicyAlways, "a", "b")
		readiness(pod, "a")
		n := newTestNode(t, pod)
		n.runtime.slow["pull b"] = time.Hour
		synctest.Test(t, func(t *testing.T) {
			n.start()
			defer n.stop()
			pass(5 * time.Second)
			if !n.ready("a") {
				t.Error("not shown as ready while another image is pulled")
			}
			n.mu.Lock()
			n.sick["a"] = true
			n.mu.Unlock()
			pass(5 * time.Second)
			if n.ready("a") {
				t.Error("shown as ready while another image is pulled")
			}
		})
	})
	t.Run("stop", func(t *testing.T) {
		pod := testPod(v1.RestartPolicyAlways, "a", "b")
		readiness(pod, "a")
		liveness(pod, "b")
		n := newTestNode(t, pod)
		n.runtime.slow["b"] = time.Hour
		synctest.Test(t, func(t *testing.T) {
			n.start()
			defer n.stop()
			pass(5 * time.Second)
			n.mu.Lock()
			n.sick["a"], n.sick["b"] = true, true
			n.mu.Unlock()
			pass(5 * time.Second)
			if n.ready("a") {
				t.Error("shown as ready while another container is stopped")
			}
		})
	})
}
