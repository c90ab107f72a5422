// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/plugins"
)

// fakeDriver is a DRA driver that records the calls to it.
type fakeDriver struct {
	api.UnimplementedDRAPluginServer

	request string // if not empty, each claim has one more device, which belongs to this request

	mu    sync.Mutex
	fails string
	calls []string
}

func (d *fakeDriver) NodePrepareResources(_ context.Context, r *api.NodePrepareResourcesRequest) (
	*api.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "+"+r.Claims[0].Name)
	devices := []*api.Device{
		{PoolName: "pool", DeviceName: "d1", RequestNames: []string{"one"}, CdiDeviceIds: []string{"vendor/class=1"}},
		{PoolName: "pool", DeviceName: "d2", RequestNames: []string{"two"}, CdiDeviceIds: []string{"vendor/class=2"}},
		{CdiDeviceIds: []string{"vendor/class=all"}},
	}
	if d.request != "" {
		devices = append([]*api.Device{
			{RequestNames: []string{d.request}, CdiDeviceIds: []string{"vendor/class=alternative"}}}, devices...)
	}
	return &api.NodePrepareResourcesResponse{
		Claims: map[string]*api.NodePrepareResourceResponse{r.Claims[0].Uid: {Error: d.fails, Devices: devices}}}, nil
}

func (d *fakeDriver) NodeUnprepareResources(_ context.Context, r *api.NodeUnprepareResourcesRequest) (
	*api.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "-"+r.Claims[0].Name)
	return &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{
		r.Claims[0].Uid: {Error: d.fails}}}, nil
}

func (d *fakeDriver) set(fails string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = fails
}

// did returns the calls since its own last call: "+" and "-" mean that a claim was prepared or
// unprepared.
func (d *fakeDriver) did() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := strings.Join(d.calls, " ")
	d.calls = nil
	return out
}

func (d *fakeDriver) serve(t *testing.T) plugins.Plugin {
	t.Helper()
	socket, _ := serveWith(t, func(s *grpc.Server) { api.RegisterDRAPluginServer(s, d) })
	return plugins.Plugin{Name: "driver", Endpoint: socket, Versions: []string{api.DRAPluginService}}
}

// claimOf returns a claim with allocated devices, which the given pods may use.
func claimOf(name string, pods ...types.UID) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Driver: "driver"},
		{Driver: "driver"}}
	for _, uid := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", UID: uid})
	}
	return c
}

func podOf(uid types.UID, claim string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid},
		Spec: v1.PodSpec{
			ResourceClaims: []v1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}},
			Containers: []v1.Container{
				{Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "c"}}}},
				{Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "c", Request: "two"}}}},
				{},
			},
		},
	}
}

func manager(t *testing.T, file string, claims ...*resourceapi.ResourceClaim) *Manager {
	cfg := Config{
		File: file, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Changed: func(types.UID) {},
		Claim: func(_ context.Context, _, name string) (*resourceapi.ResourceClaim, error) {
			for _, c := range claims {
				if c.Name == name {
					return c, nil
				}
			}
			return nil, errors.New("not found")
		},
	}
	m := NewManager(cfg)
	t.Cleanup(m.closeAll)
	return m
}

func TestClaims(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	claims := []*resourceapi.ResourceClaim{claimOf("shared", "a", "b"), claimOf("other", "z")}
	m, d := manager(t, file, claims...), &fakeDriver{}
	a, b := podOf("a", "shared"), podOf("b", "shared")
	if err := m.Prepare(t.Context(), a); err == nil ||
		!strings.Contains(err.Error(), "DRA driver driver is not registered") {
		t.Fatalf("without a driver: %v", err)
	}
	plugin := d.serve(t)
	if err := m.Register(t.Context(), plugin); err != nil {
		t.Fatal(err)
	}
	d.set("broken")
	if err := m.Prepare(t.Context(), a); err == nil ||
		!strings.Contains(err.Error(), "NodePrepareResources failed for ResourceClaim shared: broken") {
		t.Fatalf("driver fails: %v", err)
	}
	d.set("")
	d.did()
	for _, pod := range []*v1.Pod{a, a, b} { // for the second call for a, there is nothing to do
		if err := m.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.did(); got != "+shared +shared" {
		t.Errorf("calls %q", got)
	}
	for i, want := range []string{"vendor/class=1,vendor/class=2,vendor/class=all",
		"vendor/class=2,vendor/class=all", ""} {
		got, err := m.Container(a, &a.Spec.Containers[i])
		if err != nil || strings.Join(got, ",") != want {
			t.Errorf("container %d: %v, %v; want %s", i, got, err, want)
		}
	}

	// After a restart, the kubelet calls the driver again before it starts a container, and makes
	// the driver unprepare the claim after its last pod has ended.
	m = manager(t, file, claims...)
	if err := m.Register(t.Context(), plugin); err != nil {
		t.Fatal(err)
	}
	if got := m.Pods(); len(got) != 2 || !slices.Contains(got, "a") {
		t.Errorf("pods %v", got)
	}
	if err := m.Prepare(t.Context(), a); err != nil || d.did() != "+shared" {
		t.Errorf("after a restart: %v", err)
	}
	if err := m.Unprepare(t.Context(), "a"); err != nil || d.did() != "" {
		t.Errorf("another pod uses it: %v", err)
	}
	d.set("broken")
	if err := m.Unprepare(t.Context(), "b"); err == nil || len(m.Pods()) != 1 {
		t.Errorf("driver fails: %v, pods %v", err, m.Pods())
	}
	d.set("")
	d.did()
	if err := m.Unprepare(t.Context(), "b"); err != nil || d.did() != "-shared" || len(m.Pods()) != 0 {
		t.Errorf("the last pod: %v, pods %v", err, m.Pods())
	}
}

// TestMetrics checks the metrics of operations and of claims in use. Operations for pods without
// claims are not counted.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("shared", "a"))
	m.cfg.Metrics = registry
	m = NewManager(m.cfg)
	t.Cleanup(m.closeAll)
	d := &fakeDriver{}
	expect := func(name string, want map[string]float64) {
		t.Helper()
		got := map[string]float64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, one := range f.GetMetric() {
				var labels []string
				for _, l := range one.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				if f.GetName() == name {
					got[strings.Join(labels, " ")] = one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if err := m.Register(t.Context(), d.serve(t)); err != nil {
		t.Fatal(err)
	}
	expect("dra_resource_claims_in_use", map[string]float64{"<any>": 0})
	d.set("broken")
	pod := podOf("a", "shared")
	_ = m.Prepare(t.Context(), pod)
	expect("dra_resource_claims_in_use", map[string]float64{"<any>": 0})
	d.set("")
	for _, pod := range []*v1.Pod{pod, {}} {
		if err := m.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	expect("dra_resource_claims_in_use", map[string]float64{"<any>": 1, "driver": 1})
	for range 2 {
		if err := m.Unprepare(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	expect("dra_resource_claims_in_use", map[string]float64{"<any>": 0})
	expect("dra_operations_duration_seconds",
		map[string]float64{"true PrepareResources": 1, "false PrepareResources": 1, "false UnprepareResources": 1})
	const service = "driver OK /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
	expect("dra_grpc_operations_duration_seconds", map[string]float64{service + "NodePrepareResources": 2,
		service + "NodeUnprepareResources": 1})
}

func TestClaimsOfOtherPods(t *testing.T) {
	unallocated := claimOf("unallocated", "a")
	unallocated.Status.Allocation = nil
	m := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("other", "z"), unallocated)
	for name, want := range map[string]string{
		"other":       "pod a (a) is not allowed to use ResourceClaim other (uid-other)",
		"unallocated": "claim is not allocated", "missing": "fetch ResourceClaim missing: not found",
	} {
		if err := m.Prepare(t.Context(), podOf("a", name)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if len(m.Pods()) != 0 {
		t.Errorf("pods %v", m.Pods())
	}
	if err := m.Register(t.Context(), plugins.Plugin{Name: "old", Versions: []string{"v1alpha1.DRAPlugin"}}); err == nil {
		t.Error("a driver of another version was taken up")
	}
}

// TestNoDriver checks that a pod whose driver is not registered cannot start, and that the pod can
// end without the driver.
func TestNoDriver(t *testing.T) {
	m := manager(t, filepath.Join(t.TempDir(), "state"), claimOf("c", "a"))
	if err := m.Prepare(t.Context(), podOf("a", "c")); err == nil ||
		!strings.HasSuffix(err.Error(), "DRA driver driver is not registered") {
		t.Errorf("prepared: %v", err)
	}
	if err := m.Unprepare(t.Context(), "a"); err != nil || len(m.Pods()) != 0 {
		t.Errorf("%v, pods %v", err, m.Pods())
	}
}
