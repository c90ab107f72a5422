// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/loopdev"
	"keelson.dev/keelson/test/unshare"
)

// groupPod returns a pod with an fsGroup.
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

// TestLocalGroups checks that a directory keeps the fsGroup of the first pod while any pod uses it,
// even if a second pod has another fsGroup.
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
			t.Errorf("pod %s: events %v, want %s", step.uid, told, step.told)
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

// TestLocalGrows grows the volume of a claim while a pod uses it. It checks that the file system of
// a device is resized and that a directory is not. The test puts a program of its own in the place
// of resize2fs, because in some environments even root may not run resize2fs.
func TestLocalGrows(t *testing.T) {
	unshare.Need(t)
	bin := t.TempDir()
	asked := filepath.Join(bin, "asked")
	script := "#!/bin/sh\necho \"$@\" >>" + asked + "\n"
	if err := os.WriteFile(filepath.Join(bin, "resize2fs"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, tc := range map[string]struct {
		path   func(t *testing.T) string
		resize bool
	}{
		"directory": {path: func(t *testing.T) string { return t.TempDir() }},
		"device":    {path: testDevice, resize: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(asked); err != nil {
				t.Fatal(err)
			}
			server := testserver.Start(t, testserver.Options{})
			path := tc.path(t)
			bindVolume(t, server.Client, v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}, "32Mi", "32Mi", "")
			m, pod := newManager(t, newMemory()), claimPod()
			m.cfg.Client = server.Client
			t.Cleanup(func() {
				if err := m.Teardown(context.Background(), pod.UID); err != nil {
					t.Error(err)
				}
			})
			if _, err := m.Prepare(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			growVolume(t, server.Client, "64Mi")
			if err := m.refresh(t.Context(), pod.UID); err != nil {
				t.Fatal(err)
			}
			got, err := server.Client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if s := got.Status.Capacity.Storage().String(); s != "64Mi" || len(got.Status.AllocatedResourceStatuses) > 0 {
				t.Errorf("the claim has %s, resizing %v", s, got.Status.AllocatedResourceStatuses)
			}
			resized, err := os.ReadFile(asked)
			if got := strings.TrimSpace(string(resized)); tc.resize && got != path || !tc.resize &&
				!errors.Is(err, os.ErrNotExist) {
				t.Errorf("resized %q, %v", got, err)
			}
		})
	}
}

// testDevice creates a loop device and returns its path.
func testDevice(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 16<<20)); err != nil {
		t.Fatal(err)
	}
	device, err := loopdev.Attach(file, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return device.Path
}

// TestLocalDeviceShared checks that one pod can write to a device that another pod has mounted
// read-only.
func TestLocalDeviceShared(t *testing.T) {
	unshare.Need(t)
	device := testDevice(t)
	m := newManager(t, newMemory())
	writer, err := m.makeLocal(groupPod("1", 1), localVolume(device), false)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := m.makeLocal(groupPod("2", 1), localVolume(device), true)
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
