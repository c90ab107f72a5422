// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pvcprotection

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestUses(t *testing.T) {
	for name, tc := range map[string]struct {
		node  string
		phase v1.PodPhase
		want  bool
	}{
		"waits for a node": {"", v1.PodPending, false},
		"starts":           {"n", v1.PodPending, true},
		"runs":             {"n", v1.PodRunning, true},
		"failed":           {"n", v1.PodFailed, false},
		"succeeded":        {"n", v1.PodSucceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{NodeName: tc.node}, Status: v1.PodStatus{Phase: tc.phase}}
			if got := uses(pod); got != tc.want {
				t.Errorf("uses: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "pvc-protection-controller", controller.Options{}, New)
	core := s.Client.CoreV1()
	for _, name := range []string{"used", "free"} {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		if _, err := core.PersistentVolumeClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
		NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}},
		Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "used"}}}},
	}}
	if _, err := core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"used", "free"} {
		if err := core.PersistentVolumeClaims("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) func(context.Context) (any, bool) {
		return func(ctx context.Context) (any, bool) {
			got, err := core.PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
			return got, apierrors.IsNotFound(err)
		}
	}
	controllertest.Eventually(t, "the claim that no pod uses goes", gone("free"))
	if got, yes := gone("used")(t.Context()); yes {
		t.Fatalf("the claim that a pod uses is gone: %v", got)
	}
	zero := int64(0)
	if err := core.Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the claim goes after the pod", gone("used"))
}
