// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/release"
)

// TestUnused checks which pods make a bound claim used, and that the condition follows the pod.
func TestUnused(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	core := s.Client.CoreV1()
	inUse := v1.PersistentVolumeClaimCondition{Type: "Unused", Status: v1.ConditionFalse, Reason: "PodUsingPVC",
		Message: "A pod is currently referencing this PVC", LastTransitionTime: metav1.Now()}
	claims := map[string]string{}
	for name, c := range podCases {
		claims[name] = c.start(t, s, name)
	}
	claims["none"] = (&podCase{}).start(t, s, "none")
	claims["pending"] = (&podCase{}).start(t, s, "pending")
	for _, name := range []string{"none", "pending"} {
		controllertest.Eventually(t, "pod "+name+" is deleted", func(ctx context.Context) (any, bool) {
			err := core.Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			return err, err == nil
		})
	}
	for name, claim := range claims {
		if name == "pending" {
			continue
		}
		o, err := core.PersistentVolumeClaims("default").Get(t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Status.Phase = v1.ClaimBound
		if name == "none" {
			o.Status.Conditions = []v1.PersistentVolumeClaimCondition{inUse} // its pod ended without a controller
		}
		if _, err := core.PersistentVolumeClaims("default").UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.RunAs(t, s, "pvc-protection-controller", controller.Options{}, NewClaims)
	want := map[string]v1.ConditionStatus{
		"unscheduled":           v1.ConditionFalse,
		"starting":              v1.ConditionFalse,
		"running":               v1.ConditionFalse,
		"ephemeral-unscheduled": v1.ConditionFalse,
		"ephemeral-running":     v1.ConditionFalse,
		"failed":                v1.ConditionTrue,
		"succeeded":             v1.ConditionTrue,
		"shut-down":             v1.ConditionTrue,
		"ephemeral-succeeded":   v1.ConditionTrue,
		"ephemeral-shut-down":   v1.ConditionTrue,
		"ephemeral-alien":       v1.ConditionTrue,
		"none":                  v1.ConditionTrue,
	}
	becomes := func(name string, status v1.ConditionStatus) {
		t.Helper()
		reason, message := "NoPodsUsingPVC", "No pods are currently referencing this PVC"
		if status == v1.ConditionFalse {
			reason, message = "PodUsingPVC", "A pod is currently referencing this PVC"
		}
		controllertest.Eventually(t, "condition of the claim of "+name, func(ctx context.Context) (any, bool) {
			o, err := core.PersistentVolumeClaims("default").Get(ctx, claims[name], metav1.GetOptions{})
			if err != nil || len(o.Status.Conditions) != 1 {
				return o, false
			}
			got := o.Status.Conditions[0]
			return got, got.Type == "Unused" && got.Status == status && got.Reason == reason && got.Message == message &&
				!got.LastTransitionTime.IsZero()
		})
	}
	for name, status := range want {
		becomes(name, status)
	}

	running, err := core.Pods("default").Get(t.Context(), "running", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	running.Status.Phase = v1.PodSucceeded
	if _, err := core.Pods("default").UpdateStatus(t.Context(), running, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("running", v1.ConditionTrue)
	user := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "c", Image: "i"}},
		Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claims["none"]}}}},
	}}
	if _, err := core.Pods("default").Create(t.Context(), user, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("none", v1.ConditionFalse)
	if err := core.Pods("default").Delete(t.Context(), "user",
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	becomes("none", v1.ConditionTrue)
	// A late write of the same condition must be corrected, though no pod changes after it.
	none, err := core.PersistentVolumeClaims("default").Get(t.Context(), claims["none"], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	none.Status.Conditions = []v1.PersistentVolumeClaimCondition{inUse}
	if _, err := core.PersistentVolumeClaims("default").UpdateStatus(t.Context(), none,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("none", v1.ConditionTrue)
	pending, err := core.PersistentVolumeClaims("default").Get(t.Context(), claims["pending"], metav1.GetOptions{})
	if err != nil || len(pending.Status.Conditions) != 0 {
		t.Errorf("claim that is not bound: %v, %v", pending.Status.Conditions, err)
	}
}

// TestEnded checks pods that are being deleted, which have ended when no container of them runs.
func TestEnded(t *testing.T) {
	now := metav1.Now()
	running := v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	waiting := v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}
	terminated := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}
	for name, c := range map[string]struct {
		deleted bool
		status  v1.PodStatus
		want    bool
	}{
		"alive, nothing runs":  {status: v1.PodStatus{Phase: v1.PodRunning}},
		"deleted, no statuses": {deleted: true, want: true},
		"deleted, running": {deleted: true,
			status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{terminated, running}}},
		"deleted, debugged": {deleted: true,
			status: v1.PodStatus{EphemeralContainerStatuses: []v1.ContainerStatus{running}}},
		"deleted, initializing": {deleted: true,
			status: v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{running}}},
		"deleted, stopped": {deleted: true, want: true,
			status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{terminated, waiting}}},
	} {
		pod := &v1.Pod{Status: c.status}
		if c.deleted {
			pod.DeletionTimestamp = &now
		}
		if got := ended(pod); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestUnusedEmulated checks that claims are not tracked if the release that is emulated has the
// feature off.
func TestUnusedEmulated(t *testing.T) {
	claim := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	for emulated, want := range map[release.Emulated]bool{0: true, 36: false} {
		c := &claims{Deps: controller.Deps{
			Options: controller.Options{Features: features.Options{Emulated: emulated}}}}
		if got := c.tracksUse(claim); got != want {
			t.Errorf("emulated %d: tracked: %t", emulated, got)
		}
	}
}
