// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/node"
)

const (
	name = "n1"
	// patience is how long a test waits for an expected event before it fails.
	patience = 3 * time.Minute
)

// machine holds the values that a Node reports.
type machine struct {
	mu       sync.Mutex
	err      error
	pressure map[v1.NodeConditionType]string
	// provider is the machine's provider ID. registered means that another program creates the Node
	// object.
	provider   string
	registered bool
	grace      time.Duration // see node.Config.StartGrace
	bootID     string
	event      func(eventType, reason, message string) // nil if the test needs no events
}

func (m *machine) set(err error, pressure map[v1.NodeConditionType]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, m.pressure = err, pressure
}

func start(t *testing.T, client kubernetes.Interface, m *machine) *node.Node {
	t.Helper()
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"),
		v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("110")}
	if m.event == nil {
		m.event = func(_, _, _ string) {}
	}
	h := node.NewHandle(node.Identity{Client: client, Name: name, Hostname: "host",
		Labels: map[string]string{"disk": "fast"}})
	n := node.New(h, node.Config{
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), IPs: []string{"192.0.2.11", "2001:db8::11"}, Port: 10250,
		Taints:   []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}},
		Capacity: capacity, Allocatable: node.Allocatable(capacity,
			v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}),
		Devices: func() (v1.ResourceList, v1.ResourceList, []v1.ResourceName) {
			return v1.ResourceList{"example.com/gadget": resource.MustParse("3")},
				v1.ResourceList{"example.com/gadget": resource.MustParse("2")}, []v1.ResourceName{"example.com/old"}
		},
		RuntimeVersion: func() string { return "runtime://1" }, Handlers: func() []v1.NodeRuntimeHandler {
			return nil
		}, Features: func() *v1.NodeFeatures { return nil }, Declared: []string{"SomeFeature"},
		Ready:     func() error { m.mu.Lock(); defer m.mu.Unlock(); return m.err },
		Pressures: func() map[v1.NodeConditionType]string { m.mu.Lock(); defer m.mu.Unlock(); return m.pressure },
		Images: func(context.Context) []v1.ContainerImage {
			return []v1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}}
		},
		Info: v1.NodeSystemInfo{BootID: m.bootID}, Event: m.event,
		ProviderID: m.provider, Registered: m.registered, Period: time.Hour, ReportPeriod: time.Hour,
		LeaseDuration: 40 * time.Second, StartGrace: m.grace,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return n
}

// await watches the node in the API until ok returns true.
func await(t *testing.T, client kubernetes.Interface, what string, ok func(*v1.Node) bool) *v1.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if ok(&list.Items[i]) {
				return &list.Items[i]
			}
		}
		w, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		for e := range w.ResultChan() {
			if n, is := e.Object.(*v1.Node); is && e.Type != watch.Deleted && ok(n) {
				w.Stop()
				return n
			}
		}
	}
	t.Fatalf("%s did not come about", what)
	return nil
}

func condition(n *v1.Node, c v1.NodeConditionType) v1.NodeCondition {
	for _, have := range n.Status.Conditions {
		if have.Type == c {
			return have
		}
	}
	return v1.NodeCondition{}
}

// TestRestartedNodeStaysReady checks that a restarted kubelet does not report the node as unready
// while it waits for the state of the runtime.
func TestRestartedNodeStaysReady(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	ready := func(status v1.ConditionStatus) func(*v1.Node) bool {
		return func(n *v1.Node) bool { return condition(n, v1.NodeReady).Status == status }
	}
	_, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	m := &machine{err: errors.New("runtime not asked yet"), grace: time.Hour}
	n := start(t, client, m)
	await(t, client, "registration", func(n *v1.Node) bool { return n.Labels["disk"] == "fast" })
	n.Poke()
	m.set(nil, nil)
	n.Poke()
	await(t, client, "status", func(n *v1.Node) bool { return n.Status.DaemonEndpoints.KubeletEndpoint.Port != 0 })
	for e := range seen.ResultChan() {
		got := e.Object.(*v1.Node)
		if !ready(v1.ConditionTrue)(got) {
			t.Errorf("the node is not ready in between: %v", got.Status.Conditions)
		}
		if got.Status.DaemonEndpoints.KubeletEndpoint.Port != 0 {
			break
		}
	}
	m.set(errors.New("runtime down"), nil)
	n.Poke()
	await(t, client, "unready status", ready(v1.ConditionFalse))
}

// TestUnreadyNodeIsReported checks that the status of an unready node is written when StartGrace
// has passed.
func TestUnreadyNodeIsReported(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	start(t, client, &machine{err: errors.New("runtime down"), grace: time.Millisecond, registered: true})
	if _, err := client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, client, "unready status",
		func(n *v1.Node) bool { return condition(n, v1.NodeReady).Message == "runtime down" })
}

func TestNode(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	m := &machine{err: errors.New("container runtime network not ready")}
	n := start(t, client, m)

	got := await(t, client, "registration", func(*v1.Node) bool { return true })
	if got.Labels[v1.LabelHostname] != "host" || got.Labels[v1.LabelOSStable] != "linux" || got.Labels["disk"] != "fast" {
		t.Errorf("labels %v", got.Labels)
	}
	if !slices.ContainsFunc(got.Spec.Taints, func(t v1.Taint) bool { return t.Key == "k" }) {
		t.Errorf("taints %v", got.Spec.Taints)
	}
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.11"},
		{Type: v1.NodeInternalIP, Address: "2001:db8::11"}, {Type: v1.NodeHostName, Address: "host"}}
	if !slices.Equal(got.Status.Addresses, want) || got.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("addresses %v, endpoints %v", got.Status.Addresses, got.Status.DaemonEndpoints)
	}
	if got.Status.Allocatable.Memory().String() != "3Gi" || len(got.Status.Images) != 1 ||
		got.Status.NodeInfo.ContainerRuntimeVersion != "runtime://1" ||
		!slices.Equal(got.Status.DeclaredFeatures, []string{"SomeFeature"}) {
		t.Errorf("status %+v", got.Status)
	}
	had, left := got.Status.Capacity["example.com/gadget"], got.Status.Allocatable["example.com/gadget"]
	if had.String() != "3" || left.String() != "2" {
		t.Errorf("devices: %s, allocatable %s", had.String(), left.String())
	}
	ready := condition(got, v1.NodeReady)
	if ready.Status != v1.ConditionFalse || ready.Reason != "KubeletNotReady" ||
		ready.Message != "container runtime network not ready" {
		t.Errorf("condition %+v", ready)
	}

	m.set(nil, map[v1.NodeConditionType]string{v1.NodeDiskPressure: ""})
	n.Poke()
	got = await(t, client, "readiness",
		func(n *v1.Node) bool { return condition(n, v1.NodeReady).Status == v1.ConditionTrue })
	if r := condition(got, v1.NodeReady); r.Reason != "KubeletReady" || r.Message != "kubelet is posting ready status" {
		t.Errorf("condition %+v", r)
	}
	if c := condition(got, v1.NodeDiskPressure); c.Status != v1.ConditionTrue ||
		c.Reason != "KubeletHasDiskPressure" || c.Message != "kubelet has disk pressure" {
		t.Errorf("condition %+v", c)
	}
	if c := condition(got, v1.NodeMemoryPressure); c.Status != v1.ConditionFalse ||
		c.Reason != "KubeletHasSufficientMemory" {
		t.Errorf("condition %+v", c)
	}

	lease := awaitLease(t, client)
	if *lease.Spec.HolderIdentity != name || *lease.Spec.LeaseDurationSeconds != 40 || lease.Spec.RenewTime == nil {
		t.Errorf("lease %+v", lease.Spec)
	}
	if o := lease.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != got.UID {
		t.Errorf("owners of the lease %v", o)
	}

	// After the Node object is deleted, the kubelet registers the node again, because the machine
	// still exists.
	if err := client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The kubelet reads from the server's cache. Once this read returns NotFound, the cache has the
	// deletion.
	_, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	n.Poke()
	await(t, client, "registration after the deletion", func(n *v1.Node) bool { return n.UID != got.UID })
}

func awaitLease(t *testing.T, client kubernetes.Interface) *coordinationv1.Lease {
	t.Helper()
	leases := client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) > 0 {
		return &list.Items[0]
	}
	w, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if l, ok := e.Object.(*coordinationv1.Lease); ok {
			return l
		}
	}
	t.Fatal("no lease was created")
	return nil
}

// TestProviderID checks that the Node object is created with the configured provider ID.
func TestProviderID(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	start(t, client, &machine{provider: "cloud://zone/1"})
	if got := await(t, client, "registration",
		func(*v1.Node) bool { return true }); got.Spec.ProviderID != "cloud://zone/1" {
		t.Errorf("provider ID %q", got.Spec.ProviderID)
	}
}

// TestRegisteredByAnotherProgram checks that with Registered the kubelet does not create the Node
// object, but writes its status once it exists.
func TestRegisteredByAnotherProgram(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	start(t, client, &machine{registered: true})
	made, err := client.CoreV1().Nodes().Create(t.Context(),
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"theirs": "1"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := await(t, client, "readiness",
		func(n *v1.Node) bool { return condition(n, v1.NodeReady).Status == v1.ConditionTrue })
	if got.UID != made.UID || got.Labels["disk"] != "" {
		t.Errorf("the kubelet made the node: labels %v", got.Labels)
	}
}

// TestRefresh checks that Refresh returns a label that was added after the status was last written.
func TestRefresh(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	n := start(t, client, &machine{})
	await(t, client, "registration", func(*v1.Node) bool { return true })
	patch := []byte(`{"metadata":{"labels":{"new":"1"}}}`)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Refresh(t.Context()); err != nil || got.Labels["new"] != "1" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAdoptsExistingNode(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	was, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "slow", "theirs": "1"}},
		Spec:       v1.NodeSpec{Unschedulable: true},
		Status: v1.NodeStatus{
			Capacity: v1.ResourceList{"example.com/old": resource.MustParse("1"),
				"example.com/cloud": resource.MustParse("1k")},
			Allocatable: v1.ResourceList{"example.com/old": resource.MustParse("1"),
				"example.com/stray": resource.MustParse("1")},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || err != nil {
		t.Fatal(err)
	}
	start(t, client, &machine{})
	got := await(t, client, "readiness",
		func(n *v1.Node) bool { return condition(n, v1.NodeReady).Status == v1.ConditionTrue })
	if _, ok := got.Status.Capacity["example.com/old"]; ok || len(got.Status.Capacity) != 5 {
		t.Errorf("capacity %v", got.Status.Capacity)
	}
	// A resource that another program adds to the capacity is also allocatable.
	if q := got.Status.Allocatable["example.com/cloud"]; q.Value() != 1000 || len(got.Status.Allocatable) != 5 {
		t.Errorf("allocatable %v", got.Status.Allocatable)
	}
	if got.UID != was.UID || !got.Spec.Unschedulable || got.Labels["theirs"] != "1" || got.Labels["disk"] != "fast" {
		t.Errorf("labels %v, spec %+v", got.Labels, got.Spec)
	}
}

func TestAllocatable(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	got := node.Allocatable(capacity,
		v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"),
			v1.ResourceMemory: resource.MustParse("600Mi"), "other": resource.MustParse("1")},
		v1.ResourceList{v1.ResourceMemory: resource.MustParse("600Mi")})
	if got.Cpu().String() != "1500m" || !got.Memory().IsZero() || len(got) != 2 {
		t.Errorf("allocatable %v", got)
	}
	if capacity.Cpu().String() != "2" {
		t.Error("the capacity was changed")
	}
}

func TestReadMachine(t *testing.T) {
	m, err := node.ReadMachine(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUs < 1 || m.Memory <= 0 || m.Disk <= 0 || m.MaxPIDs <= 0 || m.Info.KernelVersion == "" || m.Info.OSImage == "" {
		t.Errorf("machine %+v", m)
	}
}
