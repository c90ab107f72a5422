// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// claimPod returns a pod with a volume that refers to the claim "c".
func claimPod() *v1.Pod {
	pod := testPod(v1.Volume{Name: "v",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	pod.Namespace = "default"
	return pod
}

// TestClaimBeingDeleted deletes a claim that a pod uses. Its finalizer keeps the claim while pods
// use it. The test checks that the pod still gets its volume after a restart of the kubelet.
func TestClaimBeingDeleted(t *testing.T) {
	server := testserver.Start(t, testserver.Options{})
	bindClaim(t, server.Client, "1Gi", "1Gi", "")
	claims := server.Client.CoreV1().PersistentVolumeClaims("default")
	finalizers := func(names string) {
		t.Helper()
		patch := `{"metadata":{"finalizers":[` + names + `]}}`
		if _, err := claims.Patch(t.Context(), "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`"kubernetes.io/pvc-protection","example.com/other"`)
	if err := claims.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m, pod := newManager(t, newMemory()), claimPod()
	m.cfg.Client, m.cfg.Drivers = server.Client, &drivers{path: t.TempDir()}
	if _, err := m.makeClaim(t.Context(), pod, &pod.Spec.Volumes[0], false); err != nil {
		t.Errorf("protected: %v", err)
	}
	finalizers(`"example.com/other"`)
	if _, err := m.makeClaim(t.Context(), pod, &pod.Spec.Volumes[0], false); err == nil ||
		!strings.HasSuffix(err.Error(), "PVC is being deleted") {
		t.Errorf("no longer protected: %v", err)
	}
}

// TestMismatchedMode mounts a block volume as a directory, and uses a file system volume as a
// device. It checks that Prepare returns an error and calls no driver.
func TestMismatchedMode(t *testing.T) {
	device := []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	block, files := v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem
	for name, tc := range map[string]struct {
		mode *v1.PersistentVolumeMode
		use  func(*v1.PodSpec)
		want string
	}{
		"mounted":               {mode: &files, use: func(*v1.PodSpec) {}},
		"mounted, default mode": {use: func(*v1.PodSpec) {}},
		"block volume as a device": {mode: &block, use: func(s *v1.PodSpec) {
			s.Containers[0].VolumeMounts,
				s.Containers[0].VolumeDevices = nil, device
		}},
		"block volume mounted": {mode: &block, use: func(*v1.PodSpec) {},
			want: "volume v has volumeMode Block, but is specified in volumeMounts"},
		"file system as a device": {use: func(s *v1.PodSpec) { s.Containers[0].VolumeDevices = device },
			want: "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		"mismatch in one container": {mode: &files,
			use:  func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{VolumeDevices: device}} },
			want: "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := claimPod()
			tc.use(&pod.Spec)
			got := ""
			if err := checkUse(pod, "v", &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{VolumeMode: tc.mode}}); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	server := testserver.Start(t, testserver.Options{})
	bindClaim(t, server.Client, "1Gi", "1Gi", "")
	m, pod, d := newManager(t, newMemory()), claimPod(), &drivers{path: t.TempDir()}
	m.cfg.Client, m.cfg.Drivers = server.Client, d
	pod.Spec.Containers[0].VolumeDevices = device
	_, err := m.makeClaim(t.Context(), pod, &pod.Spec.Volumes[0], false)
	if err == nil || !strings.HasSuffix(err.Error(), "but is specified in volumeDevices") || len(d.asked) > 0 {
		t.Errorf("error %v, calls %v", err, d.asked)
	}
}
