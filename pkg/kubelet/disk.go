// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/eviction"
)

// storage adds the disk usage of a pod to the pod's statistics: the usage of each volume and of
// each container's logs, and the pod's total usage of the node's own disk.
func (u *usage) storage(ctx context.Context, s *statsapi.PodStats, pod *v1.Pod) error {
	var err error
	if s.VolumeStats, err = u.volumes.Stats(ctx, types.UID(s.PodRef.UID)); err != nil {
		return fmt.Errorf("volumes of %s: %w", s.PodRef.UID, err)
	}
	now := metav1.NewTime(u.cfg.Clock.Now())
	dir := filepath.Join(u.cfg.Kubelet.PodLogsDir, s.PodRef.Namespace+"_"+s.PodRef.Name+"_"+s.PodRef.UID)
	var bytes, inodes uint64
	for i := range s.Containers {
		c := &s.Containers[i]
		used, files, err := eviction.Files(filepath.Join(dir, c.Name))
		if err != nil {
			return fmt.Errorf("logs of %s: %w", s.PodRef.UID, err)
		}
		c.Logs = &statsapi.FsStats{Time: now, UsedBytes: &used, InodesUsed: &files}
		bytes, inodes = bytes+used, inodes+files
		if c.Rootfs != nil {
			bytes, inodes = bytes+value(c.Rootfs.UsedBytes), inodes+value(c.Rootfs.InodesUsed)
		}
	}
	for i := range s.VolumeStats {
		if v := &s.VolumeStats[i]; onNode(pod, v.Name) {
			bytes, inodes = bytes+value(v.UsedBytes), inodes+value(v.InodesUsed)
		}
	}
	given, files := eviction.KubeletFiles(filepath.Join(u.cfg.RootDir, "pods", s.PodRef.UID))
	bytes, inodes = bytes+given, inodes+files
	s.EphemeralStorage = &statsapi.FsStats{Time: now, UsedBytes: &bytes, InodesUsed: &inodes}
	return nil
}

// onNode reports whether the volume counts towards the pod's use of the node's own disk. Unknown
// volumes do not count.
func onNode(pod *v1.Pod, volume string) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == volume && (v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault)
	})
}

// disks adds the usage of the node's file systems and of process IDs to the node's statistics. It
// omits values that cannot be measured.
func (u *usage) disks(ctx context.Context, n *statsapi.NodeStats, now metav1.Time) {
	o, err := u.observe(ctx)
	if err != nil {
		u.cfg.Log.Debug("Failed to measure some of the node's resources", "err", err)
	}
	n.Fs = fsOf(o, eviction.NodeFsAvailable, eviction.NodeFsInodesFree, now)
	images := fsOf(o, eviction.ImageFsAvailable, eviction.ImageFsInodesFree, now)
	n.Runtime = &statsapi.RuntimeStats{ImageFs: images, ContainerFs: images}
	if a, ok := o[eviction.PIDAvailable]; ok {
		running := a.Capacity - a.Available
		n.Rlimit = &statsapi.RlimitStats{Time: now, MaxPID: &a.Capacity, NumOfRunningProcesses: &running}
	}
}

func fsOf(o eviction.Observation, space, files eviction.Signal, now metav1.Time) *statsapi.FsStats {
	a, ok := o[space]
	if !ok {
		return nil
	}
	s := &statsapi.FsStats{Time: now}
	s.CapacityBytes, s.AvailableBytes, s.UsedBytes = numbers(a)
	if i, ok := o[files]; ok {
		s.Inodes, s.InodesFree, s.InodesUsed = numbers(i)
	}
	return s
}

func numbers(a eviction.Amount) (capacity, available, used *uint64) {
	c, f := uint64(max(a.Capacity, 0)), uint64(max(a.Available, 0))
	u := c - min(f, c)
	return &c, &f, &u
}
