// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/loop"
	"keelson.dev/keelson/test/unshare"
)

// groupPod is a pod with a group of its own.
func groupPod(uid types.UID, group int64) *v1.Pod {
	pod := testPod()
	pod.UID, pod.Spec.SecurityContext = uid, &v1.PodSecurityContext{FSGroup: &group}
	return pod
}

func localVolume(path string) *v1.PersistentVolume {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
	}}
}

// TestLocalGroups has pods with different groups at one directory: as long as one has it, it keeps its group.
func TestLocalGroups(t *testing.T) {
	unshare.Need(t)
	dir := t.TempDir()
	m := newManager(t, newMemory())
	var told []string
	m.cfg.Event = func(pod *v1.Pod, _, reason, _ string) { told = append(told, string(pod.UID)+" "+reason) }
	for _, step := range []struct {
		uid         types.UID
		group, want int64
		told        string
		last        bool
	}{
		{uid: "1", group: 1234, want: 1234},
		{uid: "2", group: 5678, want: 1234, told: "2 AlreadyMountedVolume"},
		{uid: "3", group: 1234, want: 1234, last: true},
		{uid: "4", group: 5678, want: 5678},
	} {
		told = nil
		if _, err := m.makeLocal(groupPod(step.uid, step.group), localVolume(dir), false); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(info.Sys().(*syscall.Stat_t).Gid); got != step.want {
			t.Errorf("pod %s: group %d, want %d", step.uid, got, step.want)
		}
		if got := len(told) > 0; got != (step.told != "") || got && told[0] != step.told {
			t.Errorf("pod %s: told %v, want %s", step.uid, told, step.told)
		}
		if step.last {
			for _, uid := range []types.UID{"1", "2", "3"} {
				if err := m.Teardown(t.Context(), uid); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := m.Teardown(t.Context(), "4"); err != nil {
		t.Fatal(err)
	}
}

// TestLocalDeviceShared has one pod write to a device that another one only reads.
func TestLocalDeviceShared(t *testing.T) {
	unshare.Need(t)
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	device, err := loop.Attach(file, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = device.Close() }()
	m := newManager(t, newMemory())
	writer, err := m.makeLocal(groupPod("1", 1), localVolume(device.Path), false)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := m.makeLocal(groupPod("2", 1), localVolume(device.Path), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(writer.path, "f"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if got := read(t, reader.path, "f"); got != "x" {
		t.Errorf("the reader has %q", got)
	}
	if err := os.WriteFile(filepath.Join(reader.path, "g"), nil, 0o600); err == nil {
		t.Error("the reader wrote")
	}
	for _, uid := range []types.UID{"1", "2"} {
		if err := m.Teardown(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
}
