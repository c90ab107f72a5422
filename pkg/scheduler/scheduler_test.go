// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/api/clock"
	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/restorehold"
	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// start runs a real API server and a scheduler that uses it.
func start(t *testing.T) kubernetes.Interface {
	t.Helper()
	server := testserver.Start(t, testserver.Options{})
	follow(t, server.Client)
	return server.Client
}

// withoutBatches is a transport that makes the API server look like one without support for
// batches.
type withoutBatches struct{ http.RoundTripper }

func (w withoutBatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/apis/"+v1alpha1.Group+"/") {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
	}
	return w.RoundTripper.RoundTrip(r)
}

// follow runs a scheduler with the default configuration until the test ends.
func follow(t testing.TB, client kubernetes.Interface) {
	t.Helper()
	followWith(t, client, &configv1.KubeSchedulerConfiguration{})
}

// followWith runs a scheduler with the given configuration until the test ends.
func followWith(t testing.TB, client kubernetes.Interface, config *configv1.KubeSchedulerConfiguration) {
	t.Helper()
	followAs(t, client, config, func(*scheduler.Config) {})
}

// followAs does the same as followWith. change can modify the scheduler's settings first.
func followAs(t testing.TB, client kubernetes.Interface, config *configv1.KubeSchedulerConfiguration,
	change func(*scheduler.Config)) {
	t.Helper()
	set, err := profile.Build(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := scheduler.Config{
		Client: client, Profiles: set, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, 2)),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}
	change(&cfg)
	s, err := scheduler.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := s.Follow(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func addNode(t *testing.T, c kubernetes.Interface, name string, change func(*v1.Node)) {
	t.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	created, err := c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"),
		v1.ResourcePods: resource.MustParse("110"),
	}
	created.Status.Capacity = created.Status.Allocatable
	if created, err = c.CoreV1().Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	created.Spec.Taints = nil // remove the taint node.kubernetes.io/not-ready, which new nodes get
	if change != nil {
		change(created)
	}
	if _, err := c.CoreV1().Nodes().Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func pod(name string, change func(*v1.Pod)) *v1.Pod {
	no := false
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1.PodSpec{
			AutomountServiceAccountToken: &no,
			Containers: []v1.Container{
				{Name: "c", Image: "nginx", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func cpu(amount string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(amount)
	}
}

func create(t *testing.T, c kubernetes.Interface, p *v1.Pod) *v1.Pod {
	t.Helper()
	created, err := c.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// await watches a pod until ok returns true for it, and returns the pod. If that takes too long,
// the test fails with a message that contains what.
func await(t *testing.T, c kubernetes.Interface, name string, what string, ok func(*v1.Pod) bool) *v1.Pod {
	t.Helper()
	w, err := c.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), ResourceVersion: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var p *v1.Pod
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			t.Fatalf("pod %s was deleted; want %s", name, what)
		}
		if p, _ = e.Object.(*v1.Pod); p != nil && ok(p) {
			return p
		}
	}
	t.Fatalf("pod %s: watch ended; want %s; last seen %+v", name, what, p)
	return nil
}

func bound(p *v1.Pod) bool { return p.Spec.NodeName != "" }

// refused returns a function that reports whether a pod's PodScheduled condition is False with a
// message that contains words.
func refused(words string) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
				return strings.Contains(c.Message, words)
			}
		}
		return false
	}
}

func setup(t *testing.T) kubernetes.Interface {
	c := start(t)
	addAccount(t, c)
	return c
}

func addAccount(t testing.TB, c kubernetes.Interface) {
	t.Helper()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestPodsAreSpread(t *testing.T) {
	c := setup(t)
	addNode(t, c, "a", nil)
	addNode(t, c, "b", nil)
	// The scheduler watches nodes and pods separately. Once each node has a pod, the scheduler has
	// certainly seen both nodes.
	for _, name := range []string{"a", "b"} {
		create(t, c, pod("on-"+name, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: name} }))
		await(t, c, "on-"+name, "bound", bound)
	}
	count := map[string]int{}
	for i := range 10 {
		create(t, c, pod(fmt.Sprintf("p%d", i), nil))
	}
	for i := range 10 {
		count[await(t, c, fmt.Sprintf("p%d", i), "bound", bound).Spec.NodeName]++
	}
	if count["a"] != 5 || count["b"] != 5 {
		t.Errorf("pods without requests on nodes: %v, want 5 each", count)
	}
}

func TestUnschedulableUntilSomethingChanges(t *testing.T) {
	c := setup(t)
	addNode(t, c, "small", nil)
	addNode(t, c, "tainted",
		func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoSchedule}} })
	create(t, c, pod("fills", cpu("1500m")))
	await(t, c, "fills", "bound", bound)
	create(t, c, pod("waits", cpu("1")))
	const want = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). " +
		"preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption " +
		"is not helpful for scheduling."
	await(t, c, "waits", want, refused(want))
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "fills",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	if p := await(t, c, "waits", "bound", bound); p.Spec.NodeName != "small" {
		t.Errorf("bound to %s", p.Spec.NodeName)
	}
}

func TestGatedPodWaits(t *testing.T) {
	c := setup(t)
	create(t, c, pod("gated",
		func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/g"}} }))
	addNode(t, c, "a", nil)
	create(t, c, pod("after", nil))
	await(t, c, "after", "bound", bound)
	p, err := c.CoreV1().Pods("default").Get(t.Context(), "gated", metav1.GetOptions{})
	if err != nil || bound(p) {
		t.Fatalf("gated pod: node %q, error %v", p.Spec.NodeName, err)
	}
	if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "gated", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "gated", "bound", bound)
}

// TestHeldPodWaits checks that a held pod is not bound, that other pods are, and that the scheduler tries
// the pod without a further change once it is released.
func TestHeldPodWaits(t *testing.T) {
	c := setup(t)
	create(t, c, pod("held", func(p *v1.Pod) { p.Labels = map[string]string{restorehold.Held: "7"} }))
	addNode(t, c, "a", nil)
	create(t, c, pod("after", nil))
	await(t, c, "after", "bound", bound)
	p, err := c.CoreV1().Pods("default").Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil || bound(p) {
		t.Fatalf("held pod: node %q, error %v", p.Spec.NodeName, err)
	}
	if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+restorehold.Held+`":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "held", "bound", bound)
}

func TestPreemption(t *testing.T) { preempts(t, setup(t)) }

// TestPreemptionWithoutBatches checks preemption with a server that does not support batches.
func TestPreemptionWithoutBatches(t *testing.T) {
	server := testserver.Start(t, testserver.Options{})
	addAccount(t, server.Client)
	config := *server.Config
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return withoutBatches{rt} })
	client, err := kubernetes.NewForConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	follow(t, client)
	preempts(t, server.Client)
}

func preempts(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	addNode(t, c, "a", nil)
	if _, err := c.SchedulingV1().PriorityClasses().Create(t.Context(),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, c, pod("low", func(p *v1.Pod) {
		cpu("1500m")(p)
		p.Finalizers = []string{"example.com/hold"} // keeps the terminating pod in the API server
	}))
	await(t, c, "low", "bound", bound)
	create(t, c, pod("high", func(p *v1.Pod) { cpu("1")(p); p.Spec.PriorityClassName = "high" }))
	high := await(t, c, "high", "nominated", func(p *v1.Pod) bool { return p.Status.NominatedNodeName == "a" })
	const found = "0/1 nodes are available: 1 Insufficient cpu. " +
		"preemption: found a potential placement for pod on node a, preempting 1 victims"
	if !refused(found)(high) {
		t.Errorf("conditions of the preemptor: %+v, want message %q", high.Status.Conditions, found)
	}
	low := await(t, c, "low", "ending", func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
	why := ""
	for _, cond := range low.Status.Conditions {
		if cond.Type == v1.DisruptionTarget {
			why = cond.Reason + ": " + cond.Message
		}
	}
	if want := "PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod"; why != want {
		t.Errorf("condition of the victim %q, want %q", why, want)
	}
	// Remove the finalizer, so that the victim is deleted.
	if _, err := c.CoreV1().Pods("default").Patch(t.Context(), "low", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "low",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "high", "bound", bound)
}

func TestAntiAffinityAndNewNode(t *testing.T) {
	c := setup(t)
	addNode(t, c, "a", nil)
	apart := func(p *v1.Pod) {
		p.Labels = map[string]string{"app": "x"}
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			}}}}
	}
	create(t, c, pod("one", apart))
	await(t, c, "one", "bound", bound)
	create(t, c, pod("two", apart))
	await(t, c, "two", "refused", refused("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."))
	addNode(t, c, "b", nil)
	if p := await(t, c, "two", "bound", bound); p.Spec.NodeName != "b" {
		t.Errorf("bound to %s, want b", p.Spec.NodeName)
	}
}

// TestShrunkPodMakesRoom checks that another pod gets the resources of a pod that is resized to a
// smaller size, but only once the kubelet reports the new size.
func TestShrunkPodMakesRoom(t *testing.T) {
	c := setup(t)
	addNode(t, c, "a", nil)
	create(t, c, pod("large", cpu("500m")))
	large := await(t, c, "large", "bound", bound)
	allocated := func(amount string) {
		t.Helper()
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
		large.Status.ContainerStatuses = []v1.ContainerStatus{{
			Name: "c", Image: "nginx", ImageID: "nginx", AllocatedResources: list,
			Resources: &v1.ResourceRequirements{Requests: list},
			State:     v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}
		var err error
		if large, err = c.CoreV1().Pods("default").UpdateStatus(t.Context(), large, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	allocated("1800m") // the spec requests less, but the kubelet has not resized the pod yet
	create(t, c, pod("waits", cpu("1")))
	await(t, c, "waits", "refused", refused("1 Insufficient cpu"))
	allocated("500m")
	await(t, c, "waits", "bound", bound)
}
