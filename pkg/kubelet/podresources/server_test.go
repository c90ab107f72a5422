// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type fakeSource struct{}

func (fakeSource) Pods() []*v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "over"}, {Name: "sidecar", RestartPolicy: &always}}, Containers: []v1.Container{{Name: "main"}},
	}}}
}

func (fakeSource) Container(*v1.Pod, *v1.Container) *api.ContainerResources {
	return &api.ContainerResources{CpuIds: []int64{1, 2}}
}

func (fakeSource) Allocatable() *api.AllocatableResourcesResponse {
	return &api.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}}
}

func TestServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // the names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	var client api.PodResourcesListerClient
	for range 2 { // the second one finds the socket of the first
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New(socket, fakeSource{}).Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		client = api.NewPodResourcesListerClient(conn)
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
	}
	got, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "n", PodName: "p"})
	if err != nil || len(got.GetPodResources().GetContainers()[1].GetCpuIds()) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "n", PodName: "q"}); err == nil || !strings.HasSuffix(err.Error(), "pod q in namespace n not found") {
		t.Errorf("a pod that is not there: %v", err)
	}
	all, err := client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	if err != nil || len(all.GetCpuIds()) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	// Many at once, until they are more than a second's.
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
