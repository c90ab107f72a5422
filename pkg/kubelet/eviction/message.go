// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/quantity"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// message returns the message of an eviction. The text is that of Kubernetes.
func message(c Candidate, t *Threshold, a Amount) string {
	r := resourceOf(t.Signal)
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", r)
	fmt.Fprintf(&b, "Threshold quantity: %v, available: %v. ", t.quantity(a.Capacity),
		resource.NewQuantity(a.Available, format(r)))
	if c.Usage == nil {
		return b.String()
	}
	if res := c.Pod.Spec.Resources; r == v1.ResourceMemory && res != nil {
		request, asked := res.Requests[r]
		if used, known := memoryOf(c.Usage); asked && known {
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %v. ", c.Pod.Name,
				bytesOf(used), request.String(), r)
		}
	}
	for i := range c.Usage.Containers {
		s := &c.Usage.Containers[i]
		spec := container(c.Pod, s.Name)
		used, known := uses(s, r)
		if spec == nil || !known {
			continue
		}
		if request := spec.Resources.Requests[r]; used > quantity.Value(request) {
			fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ", s.Name,
				bytesOf(used), request.String(), r)
		}
	}
	return b.String()
}

func format(r v1.ResourceName) resource.Format {
	if r == inodes || r == pids {
		return resource.DecimalSI
	}
	return resource.BinarySI
}

func bytesOf(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

func container(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// lasts reports whether a container of the pod is a main container or a sidecar, not an init container that
// ends before the main containers start.
func lasts(pod *v1.Pod, c *v1.Container) bool {
	return cri.Sidecar(c) ||
		slices.ContainsFunc(pod.Spec.Containers, func(main v1.Container) bool { return main.Name == c.Name })
}

func uses(s *statsapi.ContainerStats, r v1.ResourceName) (int64, bool) {
	switch {
	case r == v1.ResourceMemory && s.Memory != nil:
		return value(s.Memory.WorkingSetBytes)
	case r == v1.ResourceEphemeralStorage && s.Rootfs != nil && s.Logs != nil:
		return stored(s), s.Rootfs.UsedBytes != nil && s.Logs.UsedBytes != nil
	}
	return 0, false
}

// stored returns how many bytes of the node's disk a container uses for its writable layer and its
// logs.
func stored(s *statsapi.ContainerStats) int64 {
	var sum int64
	for _, f := range []*statsapi.FsStats{s.Rootfs, s.Logs} {
		if f != nil {
			n, _ := value(f.UsedBytes)
			sum += n
		}
	}
	return sum
}

// HasStorageLimit reports whether the pod has a limit of ephemeral storage or of the size of an
// emptyDir volume.
func HasStorageLimit(pod *v1.Pod) bool {
	if _, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]; ok {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Containers,
		func(c v1.Container) bool { return !c.Resources.Limits.StorageEphemeral().IsZero() }) ||
		slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
			return v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() == 1
		})
}

// overLimit returns the message and the signal if a pod exceeds one of its storage limits.
// Otherwise the message is "".
func overLimit(pod *v1.Pod, s *statsapi.PodStats) (string, Signal) {
	if over := volume.OverLimit(pod, s.VolumeStats); len(over) > 0 {
		return over[0], emptyDirLimit
	}
	limit, limited := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	if e := s.EphemeralStorage; limited && e != nil {
		if used, known := value(e.UsedBytes); known && used > quantity.Value(limit) {
			return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
				limit.String()), podLimit
		}
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		spec := container(pod, c.Name)
		if spec == nil || !lasts(pod, spec) {
			continue
		}
		if limit := spec.Resources.Limits.StorageEphemeral(); !limit.IsZero() && stored(c) > quantity.Value(*limit) {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name,
				limit.String()), containerLimit
		}
	}
	return "", ""
}
