// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"
)

// store is a runtime with the sandboxes and containers of one pod. It counts the requests for
// statuses.
type store struct {
	runtimeapi.RuntimeServiceClient
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	asked      int
	// during is called while the runtime is answering a request for a container's status.
	during func()
}

func newStore() *store {
	return &store{sandboxes: map[string]*runtimeapi.PodSandboxStatus{},
		containers: map[string]*runtimeapi.ContainerStatus{}, during: func() {}}
}

func (s *store) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest,
	...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	r := &runtimeapi.ListPodSandboxResponse{}
	for id, b := range s.sandboxes {
		r.Items = append(r.Items, &runtimeapi.PodSandbox{Id: id, State: b.State, Metadata: b.Metadata})
	}
	return r, nil
}

func (s *store) ListContainers(context.Context, *runtimeapi.ListContainersRequest,
	...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	r := &runtimeapi.ListContainersResponse{}
	for id, c := range s.containers {
		r.Containers = append(r.Containers, &runtimeapi.Container{Id: id, State: c.State, PodSandboxId: "s"})
	}
	return r, nil
}

func (s *store) PodSandboxStatus(_ context.Context, in *runtimeapi.PodSandboxStatusRequest,
	_ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.asked++
	b, ok := s.sandboxes[in.PodSandboxId]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: proto.Clone(b).(*runtimeapi.PodSandboxStatus)}, nil
}

func (s *store) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest,
	_ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	s.asked++
	c, ok := s.containers[in.ContainerId]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	r := &runtimeapi.ContainerStatusResponse{Status: proto.Clone(c).(*runtimeapi.ContainerStatus)}
	s.during()
	return r, nil
}

func (s *store) UpdateContainerResources(_ context.Context, in *runtimeapi.UpdateContainerResourcesRequest,
	_ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	c, ok := s.containers[in.ContainerId]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	c.Resources = &runtimeapi.ContainerResources{Linux: in.Linux}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// advance moves a container to its next state: from created to running to exited.
func (s *store) advance(c *runtimeapi.ContainerStatus, moment int64) {
	switch c.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, moment
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		c.State, c.FinishedAt, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, moment, 1
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN, runtimeapi.ContainerState_CONTAINER_EXITED:
	}
}

// TestCacheMatchesRuntime checks with random changes in the runtime that a client with a cache
// always returns the same state as a client without one.
func TestCacheMatchesRuntime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore()
		keeps := &Client{Runtime: s, timeout: time.Minute}
		ctx := context.Background()
		var ids [4]string // current container IDs; the runtime never reuses an ID
		for n := range rapid.IntRange(1, 40).Draw(t, "steps") {
			moment := int64(n + 1)
			which := rapid.IntRange(0, len(ids)-1).Draw(t, "which")
			id := ids[which]
			c := s.containers[id]
			switch op := rapid.SampledFrom([]string{"advance", "create", "remove", "update", "restart",
				"list all", "sandbox", "sandbox ends"}).Draw(t, "what"); {
			case op == "create" && c == nil:
				id = fmt.Sprint("c", n)
				ids[which] = id
				s.containers[id] = &runtimeapi.ContainerStatus{Id: id,
					State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: moment}
			case op == "advance" && c != nil:
				s.advance(c, moment)
			case op == "remove":
				delete(s.containers, id)
			case op == "update" && c != nil:
				if err := keeps.UpdateResources(ctx, id, &runtimeapi.LinuxContainerResources{CpuShares: moment}); err != nil {
					t.Fatal(err)
				}
			case op == "restart":
				keeps.statuses.reset()
			case op == "list all":
				if _, err := keeps.Digest(ctx); err != nil {
					t.Fatal(err)
				}
				if kept, there := len(keeps.statuses.containers), len(s.containers); kept > there {
					t.Fatalf("%d statuses of %d containers", kept, there)
				}
			case op == "sandbox":
				s.sandboxes["s"] = &runtimeapi.PodSandboxStatus{Id: "s", CreatedAt: 1,
					Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"}}
			case op == "sandbox ends" && s.sandboxes["s"] != nil:
				s.sandboxes["s"].State, s.sandboxes["s"].Network = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, nil
			}
			got, err := keeps.Pod(ctx, "u")
			if err != nil {
				t.Fatal(err)
			}
			want, err := (&Client{Runtime: s, timeout: time.Minute}).Pod(ctx, "u")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); d != "" {
				t.Fatalf("step %d: %s", n, d)
			}
		}
	})
}

// TestStatusIsCached checks that reading a pod several times requests each status only once.
func TestStatusIsCached(t *testing.T) {
	s := newStore()
	s.sandboxes["s"] = &runtimeapi.PodSandboxStatus{Id: "s"}
	s.containers["c"] = &runtimeapi.ContainerStatus{Id: "c", State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	c := &Client{Runtime: s, timeout: time.Minute}
	for range 3 {
		if _, err := c.Pod(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked != 2 {
		t.Errorf("%d requests for statuses", s.asked)
	}
}

// TestStatusDuringUpdateIsNotCached checks that a status is not cached if the container's limits
// changed while the status was being read.
func TestStatusDuringUpdateIsNotCached(t *testing.T) {
	s := newStore()
	s.containers["c"] = &runtimeapi.ContainerStatus{Id: "c", State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	c := &Client{Runtime: s, timeout: time.Minute}
	s.during = func() {
		s.during = func() {}
		if err := c.UpdateResources(t.Context(), "c", &runtimeapi.LinuxContainerResources{CpuShares: 7}); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if _, err := c.Pod(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := c.Pod(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	if got := pod.Containers[0].Resources.GetCpuShares(); got != 7 {
		t.Errorf("%d shares", got)
	}
}
