// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

type fakeSource struct{}

func (fakeSource) Pods() []*v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "over"}, {Name: "sidecar", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "main"}},
	}}}
}

func (fakeSource) Container(*v1.Pod, *v1.Container) *api.ContainerResources {
	return &api.ContainerResources{CpuIds: []int64{1, 2},
		Devices: []*api.ContainerDevices{{ResourceName: "r", DeviceIds: []string{"d1"}}}}
}

func (fakeSource) Allocatable() *api.AllocatableResourcesResponse {
	return &api.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}}
}

func TestServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // the path of a socket has a small maximum length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	leaveSocket(t, socket)
	registry := prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(socket, fakeSource{}, registry).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client, old := api.NewPodResourcesListerClient(conn), v1alpha1.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.GetPodResources()) != 1 {
		t.Fatal(list, err)
	}
	names := ""
	for _, c := range list.GetPodResources()[0].GetContainers() {
		names += c.GetName() + " "
	}
	if names != "sidecar main " {
		t.Errorf("containers %s", names)
	}
	got, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "n", PodName: "p"})
	if err != nil || len(got.GetPodResources().GetContainers()[1].GetCpuIds()) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := client.Get(t.Context(),
		&api.GetPodResourcesRequest{PodNamespace: "n", PodName: "q"}); err == nil ||
		!strings.HasSuffix(err.Error(), "pod q in namespace n not found") {
		t.Errorf("missing pod: %v", err)
	}
	all, err := client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	if err != nil || len(all.GetCpuIds()) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	before, err := old.List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
	if err != nil || len(before.GetPodResources()) != 1 || len(before.GetPodResources()[0].GetContainers()) != 1 ||
		before.GetPodResources()[0].GetContainers()[0].GetDevices()[0].GetDeviceIds()[0] != "d1" {
		t.Errorf("v1alpha1: %v, %v", before, err)
	}
	if got, want := counted(t, registry), "errors_get 1 requests_get 2 requests_get_allocatable 1 "+
		"requests_list 1 requests_total/v1 4 requests_total/v1alpha1 1 "; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
	// Send requests concurrently until the rate limit rejects some.
	refused := make(chan bool)
	for some := false; !some; {
		for range 200 {
			go func() {
				_, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
				refused <- status.Code(err) == codes.ResourceExhausted
			}()
		}
		for range 200 {
			some = <-refused || some
		}
	}
}

// leaveSocket creates a socket file without a server, as a server that was killed leaves it.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// counted returns the metrics whose value is not 0 as text.
func counted(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "kubelet_pod_resources_endpoint_")
			if name == "requests_total" {
				name += "/" + m.GetLabel()[0].GetValue()
			}
			out += fmt.Sprintf("%s %v ", name, m.GetCounter().GetValue())
		}
	}
	return out
}
