// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/test/unshare"
)

// TestInherited checks that a restarted kubelet updates the volumes of a pod that was already
// running.
func TestInherited(t *testing.T) {
	unshare.Need(t)
	o := newMemory()
	o.set("cm", map[string]string{"a": "1"})
	scratch := v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	pod := testPod(configMapVolume("v", "cm"), scratch)
	earlier := newManager(t, o)
	ms := prepare(t, earlier, pod)
	dir := pathOf(t, ms, "v")
	if err := os.WriteFile(filepath.Join(pathOf(t, ms, "e"), "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	m := newManager(t, o)
	m.cfg.RootDir = earlier.cfg.RootDir
	m.Update(pod, false)
	if m.queue.Len() != 0 || len(m.knownPods()) != 0 {
		t.Error("volumes of a pod that has not started are queued")
	}
	o.set("cm", map[string]string{"a": "2"})
	for _, want := range []string{"2", "3"} {
		m.Update(pod, true)
		o.set("cm", map[string]string{"a": want})
		if got := m.queue.Len(); got != 1 {
			t.Errorf("%d pods are queued", got)
		}
		if err := m.refresh(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, "a"); got != want {
			t.Errorf("content %q, want %q", got, want)
		}
	}
	if read(t, pathOf(t, ms, "e"), "kept") != "x" {
		t.Error("data of the pod was lost")
	}
}

// TestInheritedPartly checks that a restarted kubelet keeps updating a volume of a running pod although another
// volume of this pod cannot be set up.
func TestInheritedPartly(t *testing.T) {
	unshare.Need(t)
	o := newMemory()
	o.set("cm", map[string]string{"a": "1"})
	secret := v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "missing"}}}
	pod := testPod(configMapVolume("v", "cm"), secret)
	m := newManager(t, o)
	events := 0
	m.cfg.Event = func(*v1.Pod, string, string, string) { events++ }
	m.Update(pod, true)
	for i, want := range []string{"2", "3"} {
		o.set("cm", map[string]string{"a": want})
		if err := m.refresh(t.Context(), pod.UID); err == nil {
			t.Error("no error for the missing Secret")
		}
		if got := read(t, m.volumeDir(pod.UID, pluginConfigMap, "v"), "a"); got != want {
			t.Errorf("content %q, want %q", got, want)
		}
		if events != i+1 {
			t.Errorf("%d events after %d refreshes", events, i+1)
		}
	}
	o.mu.Lock()
	o.secrets["missing"] = &v1.Secret{Data: map[string][]byte{"k": []byte("x")}}
	o.mu.Unlock()
	if err := m.refresh(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
	if got := read(t, m.volumeDir(pod.UID, pluginSecret, "s"), "k"); got != "x" {
		t.Errorf("content of the Secret %q", got)
	}
	if err := m.Teardown(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
}

// TestInheritedGrows checks that a restarted kubelet can expand the volume of a pod that was
// already running. The volume's driver registers late; until then the kubelet retries.
func TestInheritedGrows(t *testing.T) {
	server := testserver.Start(t, testserver.Options{})
	bindClaim(t, server.Client, "1Gi", "1Gi", "")
	m := newManager(t, newMemory())
	d := &drivers{}
	m.cfg.Client, m.cfg.Drivers = server.Client, d
	pod := claimPod()
	m.Update(pod, true)
	if err := m.refresh(t.Context(), pod.UID); err == nil {
		t.Error("made without a driver")
	}
	d.path = t.TempDir()
	if err := m.refresh(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	growVolume(t, server.Client, "2Gi")
	if err := m.refresh(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if want := []string{"mount", "mount", "expand"}; !slices.Equal(d.asked, want) {
		t.Errorf("calls %v, want %v", d.asked, want)
	}
}
