// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/restorehold"
)

// fakePods is a container runtime whose pods run until they are ended.
type fakePods struct {
	mu      sync.Mutex
	running map[types.UID]bool // false for a pod whose container has exited
	workers map[types.UID]bool
}

func (f *fakePods) Digest(context.Context) (map[types.UID]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[types.UID]string{}
	for uid := range f.running {
		out[uid] = "x"
	}
	return out, nil
}

func (f *fakePods) Pod(_ context.Context, uid types.UID) (*cri.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := cri.Container{State: cri.Exited}
	if f.running[uid] {
		c.State = cri.Running
	}
	return &cri.Pod{UID: uid, Containers: []cri.Container{c}}, nil
}

func (f *fakePods) withWorkers() []types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []types.UID
	for uid := range f.workers {
		out = append(out, uid)
	}
	return out
}

func (f *fakePods) end(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, uid)
	delete(f.workers, uid)
}

// Set and Remove make fakePods a pool of workers.

func (f *fakePods) Set(pod *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[pod.UID] = true
}

func (f *fakePods) Remove(types.UID) {} // the test ends pods

// reporting is a kubelet's reporter of the node n1, with the rights of its kubelet.
type reporting struct {
	*testing.T
	admin  kubernetes.Interface
	pods   *fakePods
	node   *node.Handle
	cache  *apiCache
	report *reporter
	asked  chan struct{} // receives each request to list the runtime
}

func newReporting(t *testing.T, labels map[string]string) *reporting {
	t.Helper()
	s := testserver.Start(t, testserver.Options{})
	r := &reporting{T: t, admin: s.Client, asked: make(chan struct{}, 1),
		pods: &fakePods{running: map[types.UID]bool{}, workers: map[types.UID]bool{}}}
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(s.UserConfig(t, "system:node:n1", "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Client: client, NodeName: "n1", Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	r.cache = newAPICache(cfg)
	r.node = node.NewHandle(node.Identity{Client: client, Name: "n1", Hostname: "n1"})
	sources := &sources{api: r.cache, startup: newStartup(prometheus.NewRegistry(), cfg.Clock)}
	r.report = &reporter{clock: cfg.Clock, log: cfg.Log, node: r.node, pods: sources, workers: r.pods.withWorkers,
		runtime: r.pods, relist: func() {
			select {
			case r.asked <- struct{}{}:
			default:
			}
		}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait(); r.cache.factory.Shutdown() })
	if err := sources.run(ctx, r.pods); err != nil {
		t.Fatal(err)
	}
	status := node.New(r.node, node.Config{Clock: cfg.Clock, Log: cfg.Log, Registered: true, Period: 50 * time.Millisecond,
		ReportPeriod: time.Hour, LeaseDuration: time.Minute,
		Devices:        func() (_, _ v1.ResourceList, _ []v1.ResourceName) { return nil, nil, nil },
		RuntimeVersion: func() string { return "" }, Handlers: func() []v1.NodeRuntimeHandler { return nil },
		Features: func() *v1.NodeFeatures { return nil },
		Images:   func(context.Context) []v1.ContainerImage { return nil },
		Ready:    func() error { return nil }, Pressures: func() map[v1.NodeConditionType]string { return nil },
		Event: func(_, _, _ string) {}})
	wg.Go(func() { _ = status.Run(ctx) })
	wg.Go(func() { _ = r.report.run(ctx) })
	return r
}

func (r *reporting) unreported() bool {
	r.Helper()
	n, err := r.admin.CoreV1().Nodes().Get(r.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return restorehold.Waiting(n)
}

func (r *reporting) awaitReport() {
	r.Helper()
	err := wait.PollUntilContextTimeout(r.Context(), 20*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) { return !r.unreported(), nil })
	if err != nil {
		r.Fatal("the node was not reported: ", err)
	}
}

func (r *reporting) label(value string) {
	r.Helper()
	if _, err := r.admin.CoreV1().Nodes().Patch(r.Context(), "n1", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+restorehold.Unreported+`":"`+value+`"}}}`), metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
}

// create creates a pod on the node.
func (r *reporting) create(name string) types.UID {
	r.Helper()
	p, err := r.admin.CoreV1().Pods("default").Create(r.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return p.UID
}

// TestReport checks that a kubelet reports its node only when the pods that the API does not have are
// gone, that known pods need not end, and that it reports each new value of the label.
func TestReport(t *testing.T) {
	r := newReporting(t, nil)
	known := r.create("known")
	r.pods.mu.Lock()
	r.pods.running[known], r.pods.running["unknown"], r.pods.running["exited"] = true, true, false
	r.pods.workers["ending"] = true
	r.pods.mu.Unlock()
	r.label("7")
	<-r.asked // the kubelet has compared, and found that not all have ended
	r.pods.end("ending")
	<-r.asked
	<-r.asked
	if !r.unreported() {
		t.Fatal("reported while an unknown pod runs")
	}
	r.pods.end("unknown")
	r.awaitReport()
	r.label("8")
	r.awaitReport()
	if !r.pods.running[known] {
		t.Error("a known pod has ended")
	}
}

// TestReportAtStart checks that a kubelet that starts on an unreported node reports it.
func TestReportAtStart(t *testing.T) {
	newReporting(t, map[string]string{restorehold.Unreported: "7"}).awaitReport()
}

// markedFake is a Node in memory.
type markedFake struct {
	node    *v1.Node
	removed []string
}

func (m *markedFake) Current() *v1.Node     { return m.node }
func (m *markedFake) Seen() <-chan struct{} { return nil }
func (m *markedFake) Poke()                 {}
func (m *markedFake) RemoveLabel(_ context.Context, _, value string) error {
	m.removed = append(m.removed, value)
	return nil
}

// oldPods are the pods of an API server with the lost history until fresh is true.
type oldPods struct {
	fresh  bool
	lists  int
	wanted string
}

func (p *oldPods) list(_ context.Context, version string) error {
	p.lists++
	p.wanted = version
	return nil
}
func (p *oldPods) atLeast(string) bool { return p.fresh }
func (p *oldPods) all() []*v1.Pod      { return nil }

// TestNoReportFromTheLostHistory checks that a kubelet does not trust pods that are older than the label,
// and that the kubelet of a fenced node does nothing.
func TestNoReportFromTheLostHistory(t *testing.T) {
	n := &markedFake{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100",
		Labels: map[string]string{restorehold.Unreported: "7"}}}}
	p := &oldPods{}
	r := &reporter{clock: clock.Real(), log: slog.New(slog.DiscardHandler), node: n, pods: p,
		workers: func() []types.UID { return nil }, runtime: &fakePods{}, relist: func() {}}
	for range 3 {
		if done, err := r.report(t.Context()); done || err != nil || len(n.removed) > 0 {
			t.Fatalf("done %v, %v, removed %v", done, err, n.removed)
		}
	}
	if p.lists != 1 || p.wanted != "100" {
		t.Errorf("%d lists, of %s", p.lists, p.wanted)
	}
	p.fresh = true
	n.node.Labels[restorehold.Fenced] = "7"
	if done, err := r.report(t.Context()); !done || err != nil || len(n.removed) > 0 {
		t.Errorf("fenced: done %v, %v, removed %v", done, err, n.removed)
	}
	delete(n.node.Labels, restorehold.Fenced)
	if done, err := r.report(t.Context()); !done || err != nil || len(n.removed) != 1 || n.removed[0] != "7" {
		t.Errorf("done %v, %v, removed %v", done, err, n.removed)
	}
}
