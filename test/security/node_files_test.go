// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/podcertificate"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// secretText is the content of a file on the node that pods must not read.
const secretText = "the node's secret\n"

// hostDir creates a directory on the node with the named files. Pods must not change these files.
func hostDir(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(secretText), 0o600))
	}
	return dir
}

// sharedVolume is a volume driver that publishes the same directory to every pod.
type sharedVolume struct {
	volume.Drivers
	dir string
}

func (d sharedVolume) Mount(context.Context, *v1.Pod, csi.Volume) (csi.Mounted, error) {
	return csi.Mounted{Path: d.dir, ChangeGroup: true}, nil
}

func (sharedVolume) Teardown(context.Context, types.UID) error { return nil }

// volumesIn returns a volume manager whose directory is root.
func volumesIn(root string, d volume.Drivers) *volume.Manager {
	return volume.New(volume.Config{
		RootDir: root, Objects: content{}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Allocatable: func() v1.ResourceList { return nil }, Drivers: d,
		Certificates: podcertificate.New(podcertificate.Config{}),
	})
}

// whileSwapping calls f. Meanwhile, like a malicious pod, it replaces the directory at path by a
// symbolic link to target and back, as fast as it can.
func whileSwapping(t *testing.T, path, target string, f func()) {
	t.Helper()
	link := path + "-link"
	check(t, os.Symlink(target, link))
	var stop atomic.Bool
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for !stop.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
	})
	defer func() { stop.Store(true); swapping.Wait() }()
	f()
}

// TestFSGroupStaysInVolume checks that the kubelet changes no files outside a volume when it
// changes the group of the volume's files (fsGroup), even if a running pod replaces a directory in
// the volume by a link.
func TestFSGroupStaysInVolume(t *testing.T) {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("file%d", i))
	}
	outside, shared := hostDir(t, names...), t.TempDir()
	check(t, os.Mkdir(filepath.Join(shared, "dir"), 0o755))
	for _, name := range names {
		check(t, os.WriteFile(filepath.Join(shared, "dir", name), nil, 0o600))
	}
	m := volumesIn(t.TempDir(), sharedVolume{dir: shared})
	whileSwapping(t, filepath.Join(shared, "dir"), outside, func() {
		for i := range 300 {
			pod := withVolume(v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}, v1.VolumeMount{})
			pod.UID = types.UID(fmt.Sprintf("uid%d", i))
			// Use a different group each time, so that the kubelet has to change the files again.
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(3000 + i))}
			_, err := m.Prepare(t.Context(), pod)
			check(t, err)
		}
	})
	for _, path := range append([]string{outside}, names...) {
		info, err := os.Lstat(filepath.Join(outside, filepath.Base(path)))
		if path == outside {
			info, err = os.Lstat(outside)
		}
		check(t, err)
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 0 || info.Mode().Perm()&0o020 != 0 {
			t.Fatalf("%s of the node has group %d and mode %v", path, gid, info.Mode())
		}
	}
}

// TestContentVolumesAreNotTrusted checks that files in a secret volume can neither lead the kubelet
// out of the volume nor block it. A container can write into a secret volume if it is root with
// CAP_SYS_ADMIN in a user namespace, because it can then remount the volume.
func TestContentVolumesAreNotTrusted(t *testing.T) {
	for name, plant := range map[string]func(t *testing.T, dir, outside string){
		"link at a mount point": func(t *testing.T, dir, outside string) {
			check(t, os.Symlink(outside, filepath.Join(dir, "sub")))
		},
		"pipe as content": func(t *testing.T, dir, _ string) {
			check(t, os.Remove(filepath.Join(dir, "..data", "key")))
			check(t, unix.Mkfifo(filepath.Join(dir, "..data", "key"), 0o600))
		},
		"data elsewhere": func(t *testing.T, dir, outside string) {
			check(t, os.Remove(filepath.Join(dir, "..data")))
			check(t, os.Symlink(outside, filepath.Join(dir, "..data")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outside, root := hostDir(t, "key"), t.TempDir()
			// Use a ConfigMap, because its volume is a plain directory that needs no mount and no
			// root.
			pod := withVolume(v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}}, v1.VolumeMount{})
			pod.Spec.Volumes = append(pod.Spec.Volumes,
				v1.Volume{Name: "w", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			ms, err := volumesIn(root, drivers{}).Prepare(t.Context(), pod)
			check(t, err)
			dir, _ := ms.Path("v")
			plant(t, dir, outside)
			// Simulate a restart of the kubelet, which then has to create a mount point in the
			// volume.
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
				v1.VolumeMount{Name: "w", MountPath: "/v/sub/made"})
			_, _ = volumesIn(root, drivers{}).Prepare(t.Context(), pod) // the pod may fail; only the files matter
			entries, err := os.ReadDir(outside)
			check(t, err)
			if text, err := os.ReadFile(filepath.Join(outside, "key")); len(entries) != 1 || err != nil ||
				string(text) != secretText {
				t.Errorf("the node's directory has %v, and its file %q", entries, text)
			}
		})
	}
}

// TestDeepDirectoriesAreMeasured checks that the disk usage of deeply nested directories is
// measured, even if their paths are longer than the kernel permits. Otherwise a pod could avoid
// eviction.
func TestDeepDirectoriesAreMeasured(t *testing.T) {
	m := volumesIn(t.TempDir(), drivers{})
	pod := withVolume(v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)}}, v1.VolumeMount{})
	ms, err := m.Prepare(t.Context(), pod)
	check(t, err)
	dir, _ := ms.Path("v")
	check(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 3<<20), 0o600))
	for _, depth := range []int{30, 3000} {
		deepen(t, dir, depth)
		stats, err := m.Stats(t.Context(), pod.UID)
		check(t, err)
		if over := volume.OverLimit(pod, stats); len(over) != 1 {
			t.Errorf("%d directories deep: the volume is over its limit, but the kubelet reports %q", depth, over)
		}
	}
	check(t, m.Teardown(t.Context(), pod.UID))
}

// deepen creates nested directories with long names in dir.
func deepen(t *testing.T, dir string, depth int) {
	t.Helper()
	name := strings.Repeat("d", 200)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(t, err)
	for range depth {
		if err := unix.Mkdirat(at, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(t, err)
		check(t, unix.Close(at))
		at = next
	}
	check(t, unix.Close(at))
}

// TestNodeLogsStayInDirectory checks that the kubelet's path /logs/ serves only files in the log
// directory. A pod with a volume of the node's /var/log can create symbolic links and named pipes
// there.
func TestNodeLogsStayInDirectory(t *testing.T) {
	lab := newLab(t, nil)
	lab.user(t, "reader", "",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/proxy", "nodes/log"}, Verbs: []string{"get"}})
	n, address := lab.kubelet(t, filepath.Join(lab.Dir, "ca.crt"))
	outside := hostDir(t, "shadow")
	check(t, os.Symlink(filepath.Join(outside, "shadow"), filepath.Join(n.logs, "link")))
	check(t, os.Symlink(outside, filepath.Join(n.logs, "dir")))
	check(t, os.Symlink("/", filepath.Join(n.logs, "root")))
	check(t, unix.Mkfifo(filepath.Join(n.logs, "pipe"), 0o600))
	check(t, os.MkdirAll(filepath.Join(n.logs, "pods"), 0o755))
	check(t, os.WriteFile(filepath.Join(n.logs, "pods", "0.log"), []byte("a log"), 0o600))
	// Symbolic links like this one exist in /var/log/containers and must work.
	check(t, os.Symlink(filepath.Join(n.logs, "pods", "0.log"), filepath.Join(n.logs, "good")))

	c := lab.UserConfig(t, "reader")
	// The server's certificate is not verified, because it is self-signed.
	c.Host, c.TLSClientConfig.CAData, c.TLSClientConfig.Insecure = "https://"+address, nil, true
	// The timeout ends the test if an attack blocks the server.
	c.Timeout = time.Minute
	eventually(t, "the reader may read", func(context.Context) bool {
		code, _, text := get(t, c, "/logs/good")
		return code == http.StatusOK && text == "a log"
	})
	for _, path := range []string{"/logs/link", "/logs/dir/", "/logs/dir/shadow", "/logs/root/" + outside[1:] +
		"/shadow", "/logs/pipe"} {
		if code, _, text := get(t, c, path); code == http.StatusOK || strings.Contains(text, "shadow\"") ||
			strings.Contains(text, secretText) {
			t.Errorf("%s is answered with %d: %q", path, code, text)
		}
	}
}

// running is a fake container runtime with one running container.
type running struct{ path string }

func (r running) Logs(context.Context) ([]logs.Log, error) {
	return []logs.Log{{ContainerID: "c", Path: r.path}}, nil
}
func (running) ReopenLog(context.Context, string) error { return nil }

// TestLogsOfContainersAreFiles checks that the kubelet follows no symbolic links and opens no named
// pipes in place of container logs. A pod with a volume of the node's /var/log can create these.
// The kubelet would otherwise compress, rename, remove or return other files, or block.
func TestLogsOfContainersAreFiles(t *testing.T) {
	const line = "2026-01-02T03:04:05.000000001Z stdout F another tenant's secret\n"
	setUp := func(t *testing.T) (root, dir, outside string) {
		root, outside = t.TempDir(), hostDir(t)
		dir = filepath.Join(root, "ns_p_uid", "c")
		check(t, os.MkdirAll(dir, 0o755))
		for _, name := range []string{"0.log", "0.log.20260101-000000"} {
			check(t, os.WriteFile(filepath.Join(outside, name), []byte(line), 0o600))
		}
		return root, dir, outside
	}
	rotate := func(root, path string) error {
		k, err := logs.New(logs.Config{
			Runtime: running{path}, Root: root, MaxSize: 1, MaxFiles: 5, Period: time.Second,
			Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		})
		check(t, err)
		return k.Rotate(t.Context())
	}
	unchanged := func(t *testing.T, outside string) {
		t.Helper()
		entries, err := os.ReadDir(outside)
		check(t, err)
		if len(entries) != 2 || entries[0].Name() != "0.log" || entries[1].Name() != "0.log.20260101-000000" {
			t.Errorf("the node's directory has %v", entries)
		}
	}
	t.Run("rotated file", func(t *testing.T) {
		root, dir, outside := setUp(t)
		path := filepath.Join(dir, "0.log")
		check(t, os.WriteFile(path, []byte(line), 0o600))
		check(t, os.Symlink(filepath.Join(outside, "0.log"), path+".20260101-000000"))
		_ = rotate(root, path) // the rotation may fail; only the files matter
		if f, err := os.Open(path + ".20260101-000000.gz"); err == nil {
			z, err := gzip.NewReader(f)
			check(t, err)
			text, err := io.ReadAll(z)
			t.Errorf("the pod reads %q, %v", text, err)
		}
		unchanged(t, outside)
	})
	t.Run("directory", func(t *testing.T) {
		root, dir, outside := setUp(t)
		check(t, os.Remove(dir))
		check(t, os.Symlink(outside, dir))
		_ = rotate(root, filepath.Join(dir, "0.log"))
		_ = logs.Remove(filepath.Join(dir, "0.log"))
		unchanged(t, outside)
	})
	t.Run("read", func(t *testing.T) {
		for name, plant := range map[string]func(t *testing.T, dir, outside string){
			"link": func(t *testing.T, dir, outside string) {
				check(t, os.Symlink(filepath.Join(outside, "0.log"), filepath.Join(dir, "0.log")))
			},
			"directory": func(t *testing.T, dir, outside string) {
				check(t, os.Remove(dir))
				check(t, os.Symlink(outside, dir))
			},
			"pipe": func(t *testing.T, dir, _ string) { check(t, unix.Mkfifo(filepath.Join(dir, "0.log"), 0o600)) },
		} {
			t.Run(name, func(t *testing.T) {
				_, dir, outside := setUp(t)
				plant(t, dir, outside)
				var out bytes.Buffer
				err := logs.Read(t.Context(), filepath.Join(dir, "0.log"),
					logs.Options{Stdout: &out, Stderr: &out, Clock: clock.Real()})
				if err == nil || out.Len() > 0 {
					t.Errorf("the user reads %q, %v", &out, err)
				}
			})
		}
	})
}
