// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/objects"
	"keelson.dev/keelson/test/unshare"
)

// memory implements Objects. It keeps the objects in memory.
type memory struct {
	mu         sync.Mutex
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	token      string
	changed    func(objects.Ref, []*v1.Pod)
	subscribed chan struct{}
}

func newMemory() *memory {
	return &memory{configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}, token: "token-1",
		subscribed: make(chan struct{})}
}

func (m *memory) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.configMaps[name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

func (m *memory) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.secrets[name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
}

func (m *memory) ServiceAccountToken(_ context.Context, _ *v1.Pod, sa string, audiences []string,
	_ time.Duration) (*authenticationv1.TokenRequestStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &authenticationv1.TokenRequestStatus{Token: strings.Join(append([]string{m.token, sa}, audiences...), "/")}, nil
}

func (m *memory) Subscribe(changed func(objects.Ref, []*v1.Pod)) func() {
	m.changed = changed
	close(m.subscribed)
	return func() {}
}

// set stores a ConfigMap and calls the subscriber.
func (m *memory) set(name string, data map[string]string, pods ...*v1.Pod) {
	m.mu.Lock()
	m.configMaps[name] = &v1.ConfigMap{Data: data}
	m.mu.Unlock()
	if m.changed != nil {
		m.changed(objects.Ref{Kind: objects.KindConfigMap, Name: name}, pods)
	}
}

func newManager(t *testing.T, o Objects) *Manager {
	t.Helper()
	return managerOf(t, Config{
		RootDir: t.TempDir(),
		Objects: o,
		Drivers: &drivers{},
		Clock:   clock.Real(),

		Certificates: &certificates{},
		Log:          slog.New(slog.DiscardHandler),
		Allocatable: func() v1.ResourceList {
			return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("64Mi")}
		},
	})
}

// managerOf returns a new Manager. The end of the test stops its queue.
func managerOf(t *testing.T, c Config) *Manager {
	t.Helper()
	m := New(c)
	t.Cleanup(m.queue.ShutDown)
	return m
}

func testPod(volumes ...v1.Volume) *v1.Pod {
	c := v1.Container{Name: "c"}
	for i := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volumes[i].Name, MountPath: "/" + volumes[i].Name})
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid-1", Labels: map[string]string{"app": "x"}},
		Spec:       v1.PodSpec{Volumes: volumes, ServiceAccountName: "sa", Containers: []v1.Container{c}},
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mode(t *testing.T, path ...string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func ptr[T any](v T) *T { return &v }

func prepare(t *testing.T, m *Manager, pod *v1.Pod) Mounts {
	t.Helper()
	ms, err := m.Prepare(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Teardown(context.Background(), pod.UID); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(m.volumesDir(pod.UID)); !os.IsNotExist(err) {
			t.Errorf("volumes are still there: %v", err)
		}
	})
	return ms
}

func pathOf(t *testing.T, ms Mounts, name string) string {
	t.Helper()
	p, ok := ms.Path(name)
	if !ok {
		t.Fatalf("no path of %s", name)
	}
	return p
}

func configMapVolume(name, object string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: object}, DefaultMode: ptr[int32](0o644),
	}}}
}

func TestPrepareContent(t *testing.T) {
	unshare.Need(t)
	o := newMemory()
	o.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"},
		BinaryData: map[string][]byte{"bin": {0, 1}}}
	o.secrets["s"] = &v1.Secret{Data: map[string][]byte{"user": []byte("u"), "pass": []byte("p")}}
	items := configMapVolume("items", "cm")
	items.ConfigMap.Items = []v1.KeyToPath{{Key: "b", Path: "sub/dir/b2", Mode: ptr[int32](0o400)}}
	optional := configMapVolume("optional", "absent")
	optional.ConfigMap.Optional = ptr(true)
	pod := testPod(
		configMapVolume("cm", "cm"), items, optional,
		v1.Volume{Name: "s",
			VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr[int32](0o440)}}},
		v1.Volume{Name: "api",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: ptr[int32](0o644),
				Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}},
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
						Items: []v1.KeyToPath{{Key: "a", Path: "ca.crt"}}}},
					{DownwardAPI: &v1.DownwardAPIProjection{
						Items: []v1.DownwardAPIVolumeFile{
							{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
				}}}},
		v1.Volume{Name: "d",
			VolumeSource: v1.VolumeSource{
				DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: ptr[int32](0o644), Items: []v1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
					{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}},
				}}}},
	)
	m := newManager(t, o)
	ms := prepare(t, m, pod)

	for _, c := range []struct {
		volume, file, want string
		mode               fs.FileMode
	}{
		{"cm", "a", "1", 0o644},
		{"cm", "bin", "\x00\x01", 0o644},
		{"items", "sub/dir/b2", "2", 0o400},
		{"s", "pass", "p", 0o440},
		{"api", "token", "token-1/sa/vault", 0o644},
		{"api", "ca.crt", "1", 0o644},
		{"api", "namespace", "ns", 0o644},
		{"d", "labels", `app="x"`, 0o644},
		{"d", "cpu", "2", 0o644},
	} {
		dir := pathOf(t, ms, c.volume)
		if got := read(t, dir, c.file); got != c.want {
			t.Errorf("%s/%s: %q, want %q", c.volume, c.file, got, c.want)
		}
		if got := mode(t, dir, c.file); got != c.mode {
			t.Errorf("%s/%s: mode %v, want %v", c.volume, c.file, got, c.mode)
		}
		if got := mode(t, dir).Perm(); got != 0o777 {
			t.Errorf("%s: mode %v", c.volume, got)
		}
	}
	if got := read(t, m.podDir(pod.UID), "volumes/kubernetes.io~configmap/cm/a"); got != "1" {
		t.Error("not at upstream's path")
	}
	entries, err := os.ReadDir(pathOf(t, ms, "optional"))
	if err != nil || len(entries) != 2 { // the two entries are ..data and the directory that it points to
		t.Errorf("optional: %v %v", entries, err)
	}
	for name, memory := range map[string]bool{"cm": false, "s": true, "api": true, "d": true} {
		if got, err := isMount(pathOf(t, ms, name)); err != nil || got != memory {
			t.Errorf("%s: is a mount: %v %v", name, got, err)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	unshare.Need(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missingKey := configMapVolume("v", "cm")
	missingKey.ConfigMap.Items = []v1.KeyToPath{{Key: "nope", Path: "x"}}
	hostPath := func(path string, kind v1.HostPathType) v1.Volume {
		return v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
	}
	for name, c := range map[string]struct {
		volume v1.Volume
		want   string
	}{
		"missing object": {configMapVolume("v", "gone"),
			`MountVolume.SetUp failed for volume "v" : configmap "gone" not found`},
		"missing key": {missingKey,
			`MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: nope`},
		"missing secret": {v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "gone"}}},
			`MountVolume.SetUp failed for volume "v" : secret "gone" not found`},
		"not a dir": {hostPath(file, v1.HostPathDirectory),
			`MountVolume.SetUp failed for volume "v" : hostPath type check failed: ` + file + ` is not a directory`},
		"not there": {hostPath("/nope", v1.HostPathSocket),
			`MountVolume.SetUp failed for volume "v" : hostPath type check failed: /nope is not a socket file`},
		"backsteps": {hostPath("/a/../b", ""),
			"MountVolume.SetUp failed for volume \"v\" : invalid HostPath `/a/../b`: must not contain '..'"},
		"csi": {v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}},
			`MountVolume.SetUp failed for volume "v" : no driver`},
		"medium": {v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "x"}}},
			`MountVolume.SetUp failed for volume "v" : unknown storage medium "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := newMemory()
			o.configMaps["cm"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
			m := newManager(t, o)
			_, err := m.Prepare(t.Context(), testPod(c.volume))
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if err := m.Teardown(t.Context(), "uid-1"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEmptyDir(t *testing.T) {
	unshare.Need(t)
	pod := testPod(
		v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		v1.Volume{Name: "mem",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory,
				SizeLimit: ptr(resource.MustParse("1Mi"))}}},
	)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr[int64](1234)}
	m := newManager(t, newMemory())
	ms := prepare(t, m, pod)
	disk, mem := pathOf(t, ms, "disk"), pathOf(t, ms, "mem")
	// A new tmpfs has the sticky bit, and a new directory on disk does not.
	for dir, more := range map[string]fs.FileMode{disk: 0, mem: fs.ModeSticky} {
		if got := mode(t, dir); got != fs.ModeDir|fs.ModeSetgid|more|0o777 {
			t.Errorf("%s: mode %v", dir, got)
		}
	}
	if err := os.WriteFile(filepath.Join(mem, "big"), make([]byte, 2<<20), 0o600); err == nil {
		t.Error("a memory volume grew over its limit")
	}
	// The kubelet keeps changes that users make to mode and owner, even after a restart.
	if err := os.Chmod(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := managerOf(t, m.cfg)
	if _, err := again.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, disk).Perm(); got != 0o700 || read(t, disk, "kept") != "x" {
		t.Errorf("a restarted kubelet changed an emptyDir: %v", got)
	}
	if uids, err := again.Pods(); err != nil || len(uids) != 1 || uids[0] != pod.UID {
		t.Errorf("pods with volumes: %v %v", uids, err)
	}
}

// TestRefresh changes a ConfigMap and waits until the volume contains the new value.
func TestRefresh(t *testing.T) {
	unshare.Need(t)
	o := newMemory()
	o.set("cm", map[string]string{"a": "1", "old": "x"})
	pod := testPod(configMapVolume("v", "cm"))
	m := newManager(t, o)
	ms := prepare(t, m, pod)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-o.subscribed
	o.set("cm", map[string]string{"a": "2", "new": "y"}, pod)
	dir := pathOf(t, ms, "v")
	for { // the file may be missing for a moment while the writer replaces it
		if got, err := os.ReadFile(filepath.Join(dir, "a")); err == nil && string(got) == "2" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for {
		if _, err := os.Lstat(filepath.Join(dir, "old")); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if read(t, dir, "new") != "y" {
		t.Error("the new key is missing")
	}
}

func TestHostPathSurvivesTeardown(t *testing.T) {
	unshare.Need(t)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "precious"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := testPod(v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host}}})
	m := newManager(t, newMemory())
	dir := m.volumeDir(pod.UID, pluginLocal, "pv")
	if err := makeDir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := bindMount(host, dir, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err == nil {
		t.Error("read-only bind is writable")
	}
	ms := prepare(t, m, pod)
	if got := pathOf(t, ms, "h"); got != host {
		t.Errorf("path %s", got)
	}
	if err := m.Teardown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if read(t, host, "precious") != "x" {
		t.Error("content of the node was removed")
	}
}

// TestUnused checks that Prepare ignores a volume that no container uses, even if it could not be
// set up.
func TestUnused(t *testing.T) {
	unshare.Need(t)
	pod := testPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	pod.Spec.Volumes = append(pod.Spec.Volumes, configMapVolume("unused", "gone"))
	ms := prepare(t, newManager(t, newMemory()), pod)
	if _, ok := ms.Path("unused"); ok {
		t.Error("made")
	}
}

func TestNestedMountpoints(t *testing.T) {
	mount := func(name, path string) v1.VolumeMount { return v1.VolumeMount{Name: name, MountPath: path} }
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		{VolumeMounts: []v1.VolumeMount{mount("v", "/etc/app/"), mount("a", "/etc/app/x/y"),
			mount("b", "/etc/app/x/y/z"), mount("c", "/etc/app-other"), mount("d", "/etc/app/x-y")}},
		{VolumeMounts: []v1.VolumeMount{mount("v", "/"), mount("a", "/one"), mount("b", "/../two")}},
	}}}
	if got, want := strings.Join(nestedMountpoints(pod, "v"), " "), "one two x-y x/y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
