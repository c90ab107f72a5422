// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// logging is a container runtime with the given running containers, by container ID. It counts the
// requests for their statuses.
type logging struct {
	runtimeapi.RuntimeServiceClient
	running []string
	asked   int
}

func (f *logging) ListContainers(context.Context, *runtimeapi.ListContainersRequest,
	...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	resp := &runtimeapi.ListContainersResponse{}
	for _, id := range f.running {
		resp.Containers = append(resp.Containers, &runtimeapi.Container{Id: id})
	}
	return resp, nil
}

func (f *logging) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest,
	_ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	f.asked++
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: r.GetContainerId(), State: runtimeapi.ContainerState_CONTAINER_RUNNING, LogPath: "/logs/" + r.GetContainerId(),
	}}, nil
}

// TestLogsOfIdleContainers checks that containerLogs requests the log path of each container only
// once, and that it drops the paths of removed containers.
func TestLogsOfIdleContainers(t *testing.T) {
	f := &logging{}
	l := &containerLogs{client: &cri.Client{Runtime: f}}
	for _, c := range []struct {
		running []string
		asked   int
	}{{[]string{"a", "b"}, 2}, {[]string{"a", "b"}, 2}, {[]string{"b", "c"}, 3}, {[]string{"a"}, 4}, {nil, 4}} {
		f.running = c.running
		got, err := l.Logs(t.Context())
		if err != nil || len(got) != len(c.running) || f.asked != c.asked || len(l.paths) != len(c.running) {
			t.Fatalf("with %v running: logs %v, asked %d times and not %d, %d kept, %v", c.running, got,
				f.asked, c.asked, len(l.paths), err)
		}
		for i, log := range got {
			if log.ContainerID != c.running[i] || log.Path != "/logs/"+c.running[i] {
				t.Errorf("log %+v of %s", log, c.running[i])
			}
		}
	}
}
