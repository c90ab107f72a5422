// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/eviction"
)

func TestFilesIn(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	if bytes, inodes, err := filesIn(dir); err != nil || bytes < 10000 || inodes != 1 {
		t.Errorf("%d bytes in %d files, %v", bytes, inodes, err)
	}
	if bytes, inodes, err := filesIn(filepath.Join(dir, "none")); err != nil || bytes != 0 || inodes != 0 {
		t.Errorf("a directory that is not there: %d bytes in %d files, %v", bytes, inodes, err)
	}
}

// TestGivenFilesCount is CVE-2020-8557: what containers write to their hosts
// files and termination messages is their pod's use of the disk.
func TestGivenFilesCount(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"etc-hosts", "containers/c/0", "containers/c/1"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/proc/kcore", filepath.Join(dir, "containers/c/2")); err != nil {
		t.Fatal(err)
	}
	if bytes, inodes := filesBelow(dir, "etc-hosts", "containers", "none"); bytes < 3<<20 || bytes > 4<<20 || inodes != 4 {
		t.Errorf("%d bytes in %d files", bytes, inodes)
	}
}

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
	o := eviction.Observation{eviction.NodeFsAvailable: {Available: 30, Capacity: 100}, eviction.NodeFsInodesFree: {Available: 9, Capacity: 10}}
	s := fsOf(o, eviction.NodeFsAvailable, eviction.NodeFsInodesFree, metav1.Time{})
	if *s.CapacityBytes != 100 || *s.AvailableBytes != 30 || *s.UsedBytes != 70 || *s.Inodes != 10 || *s.InodesFree != 9 || *s.InodesUsed != 1 {
		t.Errorf("file system %+v", s)
	}
	if s := fsOf(o, eviction.ImageFsAvailable, eviction.ImageFsInodesFree, metav1.Time{}); s != nil {
		t.Errorf("one that is not measured: %+v", s)
	}
}
