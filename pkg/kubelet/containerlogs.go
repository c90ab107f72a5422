// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/logs"
)

// newLogs returns the keeper of containers' logs.
func newLogs(cfg Config, client *cri.Client) (*logs.Keeper, error) {
	c := cfg.Kubelet
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return nil, fmt.Errorf("containerLogMaxSize: %w", err)
	}
	return logs.New(logs.Config{
		Runtime: &containerLogs{client: client}, Clock: cfg.Clock, Log: cfg.Log, Root: c.PodLogsDir, Links: linkRoot,
		MaxSize: size.Value(), MaxFiles: int(*c.ContainerLogMaxFiles), Period: c.ContainerLogMonitorInterval.Duration,
	})
}

// containerLogs implements logs.Runtime for one goroutine. The path of a container's log never
// changes, so the runtime is asked for it once per container. On an idle node only the list of
// containers is read.
type containerLogs struct {
	client *cri.Client
	paths  map[string]string // log paths of the containers that ran at the last call, by container ID
}

var _ logs.Runtime = (*containerLogs)(nil)

// Logs implements logs.Runtime.
func (l *containerLogs) Logs(ctx context.Context) ([]logs.Log, error) {
	list, err := l.client.Runtime.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %s", cri.Message(err))
	}
	var out []logs.Log
	paths := make(map[string]string, len(list.GetContainers()))
	for _, c := range list.GetContainers() {
		id := c.GetId()
		path, known := l.paths[id]
		if !known {
			s, err := l.client.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			if cri.NotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("container status: %s", cri.Message(err))
			}
			path = s.GetStatus().GetLogPath()
		}
		paths[id] = path
		if path != "" {
			out = append(out, logs.Log{ContainerID: id, Path: path})
		}
	}
	l.paths = paths
	return out, nil
}

// reopenTimeout is how long the runtime may take to open a new log file.
const reopenTimeout = 10 * time.Second

// ReopenLog implements logs.Runtime.
func (l *containerLogs) ReopenLog(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	if _, err := l.client.Runtime.ReopenContainerLog(ctx,
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("runtime: %s", cri.Message(err))
	}
	return nil
}
