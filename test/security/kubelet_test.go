// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/pkg/kubelet/podcertificate"
	"keelson.dev/keelson/pkg/kubelet/server"
	"keelson.dev/keelson/pkg/kubelet/volume"
	"keelson.dev/keelson/test/unshare"
)

// content provides the contents of volumes: one ConfigMap and one Secret.
type content struct{}

func (content) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"key": "value"}}, nil
}

func (content) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"key": []byte("value")}}, nil
}

func (content) ServiceAccountToken(context.Context, *v1.Pod, string, []string,
	time.Duration) (*authenticationv1.TokenRequestStatus, error) {
	return nil, errors.New("no tokens")
}

func (content) Subscribe(func(objects.Ref, []*v1.Pod)) func() { return func() {} }

// drivers is a set of volume drivers without any CSI driver.
type drivers struct{ volume.Drivers }

func (drivers) Teardown(context.Context, types.UID) error { return nil }

func volumes(t *testing.T) *volume.Manager {
	return volume.New(volume.Config{
		RootDir: t.TempDir(), Objects: content{}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Allocatable: func() v1.ResourceList { return nil }, Drivers: drivers{},
		Certificates: podcertificate.New(podcertificate.Config{}),
	})
}

// withVolume returns a pod with one volume, which a container mounts.
func withVolume(source v1.VolumeSource, mount v1.VolumeMount) *v1.Pod {
	mount.Name, mount.MountPath = "v", "/v"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "a", UID: "uid"},
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: source}},
			Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{mount}}}},
	}
}

// TestCVE_2017_1002101 uses a symbolic link in a volume as a subPath. Older kubelets mounted the
// link's target, any directory of the node, into the container.
func TestCVE_2017_1002101(t *testing.T) {
	unshare.Need(t)
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "host"), []byte("host"), 0o600))
	pod := withVolume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeMount{SubPath: "link"})
	ms, err := volumes(t).Prepare(t.Context(), pod)
	check(t, err)
	dir, _ := ms.Path("v")
	for what, target := range map[string]string{"absolute": outside, "relative": "../../../../../../../../" +
		outside, "of the process": "/proc/self/root" + outside, "root": "/"} {
		link := filepath.Join(dir, "link")
		check(t, os.Symlink(target, link))
		if got, err := ms.ForContainer(pod, &pod.Spec.Containers[0], volume.Options{}); err == nil {
			t.Errorf("a link that is %s is mounted: %v", what, got)
		}
		check(t, os.Remove(link))
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside is changed: %v %v", entries, err)
	}
}

// TestCVE_2021_25741 is like TestCVE_2017_1002101, but replaces a directory by a symbolic link
// between the kubelet's check and the mount.
func TestCVE_2021_25741(t *testing.T) {
	unshare.Need(t)
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "host"), []byte("host"), 0o600))
	pod := withVolume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeMount{SubPath: "sub/dir"})
	m := volumes(t)
	t.Cleanup(func() { _ = m.Teardown(context.Background(), pod.UID) }) // unmounts the volumes
	ms, err := m.Prepare(t.Context(), pod)
	check(t, err)
	dir, _ := ms.Path("v")
	check(t, os.MkdirAll(filepath.Join(dir, "sub", "dir"), 0o755))
	check(t, os.Symlink(outside, filepath.Join(dir, "evil")))
	check(t, os.Mkdir(filepath.Join(dir, "good"), 0o755))
	var stop atomic.Bool
	var swapping sync.WaitGroup
	swapping.Go(func() { // swaps as fast as a container could
		sub, dirs := filepath.Join(dir, "sub", "dir"), filepath.Join(dir, "sub", "aside")
		for !stop.Load() {
			_ = os.Rename(sub, dirs)
			_ = os.Symlink(outside, sub)
			_ = os.Remove(sub)
			_ = os.Rename(dirs, sub)
		}
	})
	defer func() { stop.Store(true); swapping.Wait() }()
	mounted := 0
	for range 200 {
		got, err := ms.ForContainer(pod, &pod.Spec.Containers[0], volume.Options{})
		if err != nil {
			continue
		}
		mounted++
		if _, err := os.Lstat(filepath.Join(got[0].HostPath, "host")); err == nil {
			t.Fatal("the container sees the node's files")
		}
	}
	t.Logf("%d of 200 mounts were made", mounted)
}

// TestCVE_2017_1002102 replaces directories of a volume by symbolic links. Older kubelets followed
// them and deleted files of the node.
func TestCVE_2017_1002102(t *testing.T) {
	unshare.Need(t)
	for name, source := range map[string]v1.VolumeSource{
		"config map": {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "x"}}},
		"secret":     {Secret: &v1.SecretVolumeSource{SecretName: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			check(t, os.WriteFile(filepath.Join(outside, "host"), []byte("host"), 0o600))
			m := volumes(t)
			pod := withVolume(source, v1.VolumeMount{})
			ms, err := m.Prepare(t.Context(), pod)
			check(t, err)
			got, err := ms.ForContainer(pod, &pod.Spec.Containers[0], volume.Options{})
			check(t, err)
			if !got[0].Readonly {
				t.Error("the container may write to the volume")
			}
			// Replace the directory by a link, as a container could.
			dir, _ := ms.Path("v")
			_ = os.Remove(filepath.Join(dir, "..data"))
			check(t, os.Symlink(outside, filepath.Join(dir, "..data")))
			check(t, os.Symlink(outside, filepath.Join(dir, "..2018_01_01")))
			check(t, os.Symlink(filepath.Join(outside, "host"), filepath.Join(dir, "old")))
			_, err = m.Prepare(t.Context(), pod)
			t.Logf("made again: %v", err)
			t.Logf("removed: %v", m.Teardown(t.Context(), pod.UID))
			if b, err := os.ReadFile(filepath.Join(outside, "host")); err != nil || string(b) != "host" {
				t.Errorf("the node's file: %q %v", b, err)
			}
		})
	}
}

// TestCVE_2024_10220 checks that gitRepo volumes are rejected. With such a volume, a pod could run
// the repository's hooks on the node, and read the repositories of other pods (CVE-2025-1767).
func TestCVE_2024_10220(t *testing.T) {
	pod := withVolume(v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{Repository: "/etc", Directory: "x"}},
		v1.VolumeMount{})
	if _, err := volumes(t).Prepare(t.Context(), pod); err == nil {
		t.Error("a repository is a volume")
	}
}

// TestCVE_2023_2431 checks that a seccomp profile of type Localhost without a name is an error.
// Older kubelets ran the container without seccomp.
func TestCVE_2023_2431(t *testing.T) {
	for what, profile := range map[string]*string{"no name": nil, "an empty name": ptr.To("")} {
		c := v1.Container{Name: "c",
			SecurityContext: &v1.SecurityContext{
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: profile}}}
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
		if got, err := cri.ContainerConfig(pod, &c, cri.ContainerInput{SeccompRoot: "/var/lib/kubelet/seccomp"}); err == nil {
			t.Errorf("%s: the container runs with %v", what, got.Linux.SecurityContext.Seccomp)
		}
	}
	c := v1.Container{Name: "c"}
	got, err := cri.ContainerConfig(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}, &c,
		cri.ContainerInput{SeccompDefault: true})
	check(t, err)
	if got.Linux.SecurityContext.Seccomp.ProfileType.String() != "RuntimeDefault" {
		t.Errorf("a container that says nothing runs with %v", got.Linux.SecurityContext.Seccomp)
	}
}

// TestCVE_2019_11245 checks that a container runs as the user of its image, not as root, after it
// was restarted.
func TestCVE_2019_11245(t *testing.T) {
	c := v1.Container{Name: "c", SecurityContext: &v1.SecurityContext{RunAsNonRoot: ptr.To(true)}}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
	for restarts := range 3 {
		for what, in := range map[string]cri.ContainerInput{
			"root": {ImageUID: ptr.To(int64(0))}, "no user": {}, "a user by name": {ImageUser: "app"},
		} {
			in.Restarts = restarts
			if _, err := cri.ContainerConfig(pod, &c, in); err == nil {
				t.Errorf("start %d: an image of %s runs where root is forbidden", restarts, what)
			}
		}
		in := cri.ContainerInput{Restarts: restarts, ImageUID: ptr.To(int64(1000))}
		got, err := cri.ContainerConfig(pod, &c, in)
		check(t, err)
		if u := got.Linux.SecurityContext.RunAsUser; u == nil || u.Value != 1000 {
			t.Errorf("start %d: runs as %v, the image says 1000", restarts, u)
		}
	}
}

// TestCVE_2020_8557 checks that what a container writes to its hosts file and its termination
// message counts as disk usage of the pod. Otherwise it could fill the node's disk without
// exceeding a limit.
func TestCVE_2020_8557(t *testing.T) {
	limit := resource.MustParse("2Mi")
	var pods []*v1.Pod
	dirs := map[types.UID]string{}
	for name, file := range map[string]string{"hosts": "etc-hosts", "message": "containers/c/0", "modest": ""} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec: v1.PodSpec{Containers: []v1.Container{
				{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: limit}}},
			}}}
		dir := t.TempDir()
		pods, dirs[pod.UID] = append(pods, pod), dir
		check(t, os.MkdirAll(filepath.Join(dir, "containers/c"), 0o750))
		// A symbolic link counts with its own size, not with the size of its target.
		check(t, os.Symlink("/proc/kcore", filepath.Join(dir, "containers/c/link")))
		if file != "" {
			check(t, os.WriteFile(filepath.Join(dir, file), make([]byte, 3<<20), 0o600))
		}
	}
	var evicted []string
	eviction.New(eviction.Config{
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Pods: func() []*v1.Pod { return pods },
		Observe: func(context.Context) (eviction.Observation, error) { return eviction.Observation{}, nil },
		Usage: func(_ context.Context, pod *v1.Pod) (*statsapi.PodStats, error) {
			bytes, inodes := eviction.KubeletFiles(dirs[pod.UID])
			return &statsapi.PodStats{EphemeralStorage: &statsapi.FsStats{UsedBytes: &bytes, InodesUsed: &inodes}}, nil
		},
		Evict: func(e eviction.Eviction) { evicted = append(evicted, e.Pod.Name) }, Changed: func() {},
	}).Check(t.Context())
	slices.Sort(evicted)
	if !slices.Equal(evicted, []string{"hosts", "message"}) {
		t.Errorf("ended for what they wrote: %q", evicted)
	}
}

// TestCVE_2021_20206 checks that a CNI configuration cannot run another program by using a path as
// the type of a plugin.
func TestCVE_2021_20206(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	check(t, os.WriteFile(filepath.Join(dir, "evil"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700))
	check(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	list, err := libcni.ConfListFromBytes([]byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"../evil"}]}`))
	if err == nil {
		cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(dir, "bin")}, dir, nil)
		_, err = cni.AddNetworkList(t.Context(), list,
			&libcni.RuntimeConf{ContainerID: "x", NetNS: "/proc/self/ns/net", IfName: "eth0"})
	}
	if _, statErr := os.Stat(ran); err == nil || statErr == nil {
		t.Errorf("the program ran; error %v", err)
	}
}

// node is a fake node for the kubelet's server. Its logs are in a directory.
type node struct {
	ran  atomic.Int32
	logs string
}

func (n *node) pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "a", UID: "u"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
}

func (n *node) Pods() []*v1.Pod                                { return []*v1.Pod{n.pod()} }
func (n *node) Pod(string, string) (*v1.Pod, bool)             { return n.pod(), true }
func (n *node) RunningPods(context.Context) ([]*v1.Pod, error) { return nil, nil }
func (n *node) command() (*url.URL, error)                     { n.ran.Add(1); return nil, errors.New("ran") }
func (n *node) Summary(context.Context, bool) (*statsapi.Summary, error) {
	return &statsapi.Summary{}, nil
}
func (n *node) ContainerLog(context.Context, *v1.Pod, string, bool) (server.LogSource, error) {
	return server.LogSource{}, errors.New("no log")
}
func (n *node) Exec(context.Context, *v1.Pod, string, []string, server.StreamOptions) (*url.URL, error) {
	return n.command()
}
func (n *node) Attach(context.Context, *v1.Pod, string, server.StreamOptions) (*url.URL, error) {
	return n.command()
}
func (n *node) PortForward(context.Context, *v1.Pod, []int32) (*url.URL, error) { return n.command() }
func (n *node) Checkpoint(context.Context, *v1.Pod, string, int64) (string, error) {
	_, err := n.command()
	return "", err
}
func (n *node) Run(context.Context, *v1.Pod, string, []string) ([]byte, error) {
	_, err := n.command()
	return nil, err
}

// kubelet starts a kubelet's server that accepts client certificates of the authority in clientCA,
// and asks the lab's API server for authorization. It returns the fake node and the server's
// address.
func (l *lab) kubelet(t *testing.T, clientCA string) (n *node, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	n = &node{logs: t.TempDir()}
	s, err := server.New(server.Config{
		Listener: listener, NodeName: "n1", CertDir: t.TempDir(), NodeAddresses: []string{"127.0.0.1"},
		Client: l.Client, Pods: n, Runtime: n, Stats: n,
		LogDir: n.logs, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Kubelet: &kubeletconfig.KubeletConfiguration{
			EnableProfilingHandler: ptr.To(false),
			Authentication: kubeletconfig.KubeletAuthentication{
				X509: kubeletconfig.KubeletX509Authentication{ClientCAFile: clientCA},
				Webhook: kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr.To(true),
					CacheTTL: metav1.Duration{Duration: time.Minute}},
			},
			Authorization: kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		},
	})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return n, listener.Addr().String()
}

// TestKubelet attacks a kubelet's server without credentials (CVE-2025-0426, CVE-2019-11248,
// CVE-2020-8551). It also tries to run commands as a user who may only read (KEP-2862).
func TestKubelet(t *testing.T) {
	lab := newLab(t, nil)
	lab.user(t, "reader", "",
		rbacv1.PolicyRule{APIGroups: []string{""},
			Resources: []string{"nodes/proxy", "nodes/metrics", "nodes/stats", "nodes/log"}, Verbs: []string{"get"}})
	n, address := lab.kubelet(t, filepath.Join(lab.Dir, "ca.crt"))
	ask := func(user, request string) int {
		t.Helper()
		c := &tls.Config{InsecureSkipVerify: true} // the kubelet's certificate is self-signed
		if user != "" {
			rc := lab.UserConfig(t, user)
			cert, err := tls.X509KeyPair(rc.CertData, rc.KeyData)
			check(t, err)
			c.Certificates = []tls.Certificate{cert}
		}
		conn, err := tls.Dial("tcp", address, c)
		check(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, request+"\r\n\r\n")
		check(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{
		"/debug/pprof/", "/debug/pprof/profile?seconds=1", "/stats/summary", "/metrics", "/metrics/resource",
		"/pods", "/runningpods/", "/configz", "/healthz", "/logs/", "/",
		"/containerLogs/a/p/c", "/run/a/p/c?cmd=id", "/exec/a/p/c?command=id", "/checkpoint/a/p/c", "/../pods", "//pods",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS", "FOO"} {
			if code := ask("", method+" "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0"); code != http.StatusUnauthorized {
				t.Errorf("without credentials %s %s is answered with %d", method, path, code)
			}
		}
	}
	const upgrade = " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " +
		"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io"
	eventually(t, "the reader may read", func(context.Context) bool {
		return ask("reader", "GET /pods HTTP/1.1\r\nHost: x") == http.StatusOK
	})
	for _, path := range []string{"/exec/a/p/c?command=id&output=1", "/attach/a/p/c?output=1",
		"/portForward/a/p?port=80", "/exec/a/p/u/c?command=id"} {
		if code := ask("reader", "GET "+path+upgrade); code != http.StatusForbidden {
			t.Errorf("a user who may read nodes/proxy gets %d for %s", code, strings.SplitN(path, "?", 2)[0])
		}
	}
	if code := ask("reader", "GET /debug/pprof/ HTTP/1.1\r\nHost: x"); code == http.StatusOK {
		t.Error("profiles are served though they are off")
	}
	if n.ran.Load() > 0 {
		t.Errorf("%d commands were run", n.ran.Load())
	}
}
