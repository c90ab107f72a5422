// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/eviction"
)

func TestOnNode(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
	}}}
	for name, want := range map[string]bool{"disk": true, "memory": false, "config": true, "claim": false, "none": false} {
		if onNode(pod, name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
	if onNode(nil, "disk") {
		t.Error("a pod that is not known has volumes")
	}
}

func TestFsOf(t *testing.T) {
	o := eviction.Observation{eviction.NodeFsAvailable: {Available: 30, Capacity: 100},
		eviction.NodeFsInodesFree: {Available: 9, Capacity: 10}}
	s := fsOf(o, eviction.NodeFsAvailable, eviction.NodeFsInodesFree, metav1.Time{})
	if *s.CapacityBytes != 100 || *s.AvailableBytes != 30 || *s.UsedBytes != 70 || *s.Inodes != 10 ||
		*s.InodesFree != 9 || *s.InodesUsed != 1 {
		t.Errorf("file system %+v", s)
	}
	if s := fsOf(o, eviction.ImageFsAvailable, eviction.ImageFsInodesFree, metav1.Time{}); s != nil {
		t.Errorf("one that is not measured: %+v", s)
	}
}
