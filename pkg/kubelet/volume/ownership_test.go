// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/test/unshare"
)

func owner(t *testing.T, path string) (uid, gid uint32) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Uid, stat.Gid
}

// TestFSGroup checks the owner and mode of the files of a token volume and a secret volume.
func TestFSGroup(t *testing.T) {
	unshare.Need(t)
	for name, c := range map[string]struct {
		group, user *int64
		tokenMode   fs.FileMode
		secretMode  fs.FileMode
		uid, gid    uint32
	}{
		"neither": {nil, nil, 0o644, 0o400, 0, 0},
		"group":   {ptr[int64](2000), nil, 0o640, 0o440, 0, 2000},
		"user":    {nil, ptr[int64](1000), 0o600, 0o400, 1000, 0},
		"both":    {ptr[int64](2000), ptr[int64](1000), 0o640, 0o440, 1000, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			o := newMemory()
			o.secrets["s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
			pod := testPod(
				v1.Volume{Name: "s",
					VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr[int32](0o400)}}},
				v1.Volume{Name: "t",
					VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
						{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
					}}}},
			)
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.group, RunAsUser: c.user}
			ms := prepare(t, newManager(t, o), pod)
			token, secret := filepath.Join(pathOf(t, ms, "t"), "token"), filepath.Join(pathOf(t, ms, "s"), "k")
			if got := mode(t, token); got != c.tokenMode {
				t.Errorf("token: mode %v, want %v", got, c.tokenMode)
			}
			if got := mode(t, secret); got != c.secretMode {
				t.Errorf("secret: mode %v, want %v", got, c.secretMode)
			}
			if uid, gid := owner(t, token); uid != c.uid || gid != c.gid {
				t.Errorf("token: owner %d:%d, want %d:%d", uid, gid, c.uid, c.gid)
			}
		})
	}
}

func TestSingleUser(t *testing.T) {
	container := func(user int64) v1.Container {
		if user < 0 {
			return v1.Container{}
		}
		return v1.Container{SecurityContext: &v1.SecurityContext{RunAsUser: &user}}
	}
	for name, c := range map[string]struct {
		pod        *int64
		init, main []int64 // user IDs of init containers and main containers; -1 if not set
		want       int64   // expected user ID; -1 if there is none
	}{
		"not set":                   {nil, nil, []int64{-1}, -1},
		"pod":                       {ptr[int64](1), []int64{-1}, []int64{-1, -1}, 1},
		"agree":                     {nil, []int64{5}, []int64{5}, 5},
		"differ":                    {nil, []int64{5}, []int64{6}, -1},
		"not set for one container": {nil, []int64{-1}, []int64{6}, -1},
		"overridden":                {ptr[int64](1), nil, []int64{2, 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{RunAsUser: c.pod}}}
			for _, u := range c.init {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, container(u))
			}
			for _, u := range c.main {
				pod.Spec.Containers = append(pod.Spec.Containers, container(u))
			}
			got := int64(-1)
			if u := singleUser(pod); u != nil {
				got = *u
			}
			if got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestStats(t *testing.T) {
	unshare.Need(t)
	pod := testPod(
		v1.Volume{Name: "disk",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("64Ki"))}}},
		v1.Volume{Name: "mem",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
				SizeLimit: ptr(resource.MustParse("1Mi"))}}},
		v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
	)
	m := newManager(t, newMemory())
	ms := prepare(t, m, pod)
	file := filepath.Join(pathOf(t, ms, "disk"), "f")
	if err := os.WriteFile(file, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, file+"2"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pathOf(t, ms, "mem"), "f"), make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	stats, err := m.Stats(t.Context(), pod.UID)
	if err != nil || len(stats) != 2 || stats[0].Name != "disk" || stats[1].Name != "mem" {
		t.Fatalf("%v %v", stats, err)
	}
	for _, s := range stats {
		if used := *s.UsedBytes; used < 100<<10 || used > 120<<10 {
			t.Errorf("%s: %d bytes used", s.Name, used)
		}
	}
	if got := *stats[1].CapacityBytes; got != 1<<20 {
		t.Errorf("capacity of memory volume: %d", got)
	}
	over := OverLimit(pod, stats)
	if len(over) != 1 || over[0] != `Usage of EmptyDir volume "disk" exceeds the limit "64Ki". ` {
		t.Errorf("%q", over)
	}
}
