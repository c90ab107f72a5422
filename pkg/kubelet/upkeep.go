// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/images"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// upkeep makes the parts that keep the node's disk and memory within bounds.
func (k *Kubelet) upkeep() error {
	c := k.cfg.Kubelet
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return fmt.Errorf("containerLogMaxSize: %w", err)
	}
	k.logs, err = logs.New(logs.Config{
		Runtime: &containerLogs{client: k.runtime.client}, Clock: k.cfg.Clock, Log: k.cfg.Log, Root: c.PodLogsDir, Links: linkRoot,
		MaxSize: size.Value(), MaxFiles: int(*c.ContainerLogMaxFiles), Period: c.ContainerLogMonitorInterval.Duration,
	})
	if err != nil {
		return err
	}
	k.records, err = images.NewRecords(filepath.Join(k.cfg.RootDir, "image_manager"), c, k.cfg.Clock, k.cfg.Log)
	if err != nil {
		return err
	}
	if k.cfg.Plugins.Config != "" {
		if k.providers, err = images.NewPlugins(k.pluginsConfig()); err != nil {
			return err
		}
	}
	k.collector = images.NewCollector(images.CollectorConfig{
		Listed: k.records.Prune,
		Images: k.runtime.client.Images, Clock: k.cfg.Clock, Log: k.cfg.Log,
		High: int(*c.ImageGCHighThresholdPercent), Low: int(*c.ImageGCLowThresholdPercent),
		MinAge: c.ImageMinimumGCAge.Duration, MaxAge: c.ImageMaximumGCAge.Duration,
		Disk: k.imageDisk, InUse: k.runtime.imagesInUse, Event: k.events.node, Tracer: k.tracer(), Metrics: k.cfg.Metrics,
	})
	thresholds, err := eviction.Parse(c)
	if err != nil {
		return err
	}
	k.eviction = eviction.New(eviction.Config{
		Clock: k.cfg.Clock, Log: k.cfg.Log, Thresholds: thresholds,
		Hold: c.EvictionPressureTransitionPeriod.Duration, MaxGrace: int64(c.EvictionMaxPodGracePeriod),
		Observe: k.observe, Reclaim: k.collector.RemoveUnused, Pods: k.livePods, Usage: (&usage{k}).one,
		Evict: k.evict, Event: k.events.node, Changed: func() { k.node.Poke() }, Metrics: k.nodeCounts,
	})
	return nil
}

func (k *Kubelet) pluginsConfig() images.PluginsConfig {
	return images.PluginsConfig{
		File: k.cfg.Plugins.Config, BinDir: k.cfg.Plugins.BinDir, Clock: k.cfg.Clock, Log: k.cfg.Log, Metrics: k.cfg.Metrics,
		ServiceAccount: func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
			return k.cfg.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Token: k.objects.TokenOfAccount,
	}
}

// observe measures the node.
func (k *Kubelet) observe(ctx context.Context) (eviction.Observation, error) {
	dir, dirErr := k.runtime.imageDir(ctx)
	o, err := eviction.Observe(k.cfg.RootDir, dir)
	if most := k.podMemory; most > 0 {
		if used := k.cgroupReader().Read(k.cgroups.Groups()[0]).Memory; used != nil {
			o[eviction.AllocatableMemory] = eviction.Amount{Available: max(most-int64(used.WorkingSet), 0), Capacity: most}
		}
	}
	return o, errors.Join(dirErr, err)
}

func (k *Kubelet) imageDisk(ctx context.Context) (capacity, available uint64, err error) {
	dir, err := k.runtime.imageDir(ctx)
	if err != nil {
		return 0, 0, err
	}
	space, _, err := eviction.Disk(dir)
	return uint64(max(space.Capacity, 0)), uint64(max(space.Available, 0)), err
}

// livePods are the pods of the node that have not ended.
func (k *Kubelet) livePods() []*v1.Pod {
	var out []*v1.Pod
	for _, pod := range k.Pods() {
		if pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
			out = append(out, pod)
		}
	}
	return out
}

func (k *Kubelet) evict(e eviction.Eviction) {
	k.events.pod(e.Pod, "", v1.EventTypeWarning, eviction.Reason, e.Message)
	k.pool.Evict(e.Pod.UID, status.Verdict{Phase: v1.PodFailed, Reason: eviction.Reason, Message: e.Message, Disruption: e.Disruption}, e.Grace)
}

func (k *Kubelet) pressures() map[v1.NodeConditionType]string {
	out := map[v1.NodeConditionType]string{}
	for _, c := range k.eviction.Pressures() {
		out[c] = ""
	}
	return out
}

// imageDir is where the runtime has its images, as it says.
func (r *runtime) imageDir(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statePoll)
	defer cancel()
	info, err := r.client.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("file system of the images: %s", cri.Message(err))
	}
	for _, fs := range info.GetImageFilesystems() {
		if dir := fs.GetFsId().GetMountpoint(); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("the runtime does not say where its images are")
}

// imagesInUse are the images of all containers that the runtime has, by their
// names and IDs.
func (r *runtime) imagesInUse(ctx context.Context) (map[string]bool, error) {
	list, err := r.client.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %s", cri.Message(err))
	}
	used := map[string]bool{}
	for _, c := range list.GetContainers() {
		for _, name := range []string{c.GetImage().GetImage(), c.GetImageRef(), c.GetImageId()} {
			if name != "" {
				used[name] = true
			}
		}
	}
	return used, nil
}

// containerLogs is the runtime as package logs sees it, for one goroutine. Where a container's log is does not change while it
// exists: the runtime is asked once for each, and an idle node asks it for its list of containers alone.
type containerLogs struct {
	client *cri.Client
	paths  map[string]string // by the containers' IDs, of those that ran the last time
}

var _ logs.Runtime = (*containerLogs)(nil)

// Logs implements logs.Runtime.
func (l *containerLogs) Logs(ctx context.Context) ([]logs.Log, error) {
	list, err := l.client.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
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

// reopenTimeout bounds the wait for a new log file.
const reopenTimeout = 10 * time.Second

// ReopenLog implements logs.Runtime.
func (l *containerLogs) ReopenLog(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	if _, err := l.client.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("runtime: %s", cri.Message(err))
	}
	return nil
}
