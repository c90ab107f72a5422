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

// newLogs returns the logs.Keeper that rotates and removes the log files of containers.
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

// containerLogs implements logs.Runtime. Only one goroutine may use it. Because the path of a
// container's log never changes, containerLogs requests the container's status only once and keeps
// the path. On an idle node, each call then only lists the running containers.
type containerLogs struct {
	client *cri.Client
	paths  map[string]string // log paths of the containers in the last list, by container ID
}

var _ logs.Runtime = (*containerLogs)(nil)

// Logs implements logs.Runtime. It returns the log files of all running containers.
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

// reopenTimeout is the timeout of the call that makes the runtime open a new log file.
const reopenTimeout = 10 * time.Second

// ReopenLog implements logs.Runtime. It makes the runtime write the container's log to a new file.
func (l *containerLogs) ReopenLog(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	if _, err := l.client.Runtime.ReopenContainerLog(ctx,
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("runtime: %s", cri.Message(err))
	}
	return nil
}
