// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// podCase is a pod that uses a claim. want is whether the claim must not be deleted before the pod.
type podCase struct {
	node  string
	phase v1.PodPhase
	// ephemeral means that the claim belongs to a generic ephemeral volume of the pod. alien means
	// that the claim has only the name of that volume's claim, but does not belong to the pod.
	ephemeral, alien bool
	// shutDown means that the test deletes the pod with no grace period. A finalizer keeps the
	// object.
	shutDown bool
	want     bool
}

// podCases are the cases by the name of the pod.
var podCases = map[string]podCase{
	"unscheduled":           {phase: v1.PodPending},
	"starting":              {node: "n", phase: v1.PodPending, want: true},
	"running":               {node: "n", phase: v1.PodRunning, want: true},
	"failed":                {node: "n", phase: v1.PodFailed, want: true},
	"succeeded":             {node: "n", phase: v1.PodSucceeded, want: true},
	"shut-down":             {node: "n", phase: v1.PodSucceeded, shutDown: true, want: true},
	"ephemeral-unscheduled": {ephemeral: true, phase: v1.PodPending},
	"ephemeral-running":     {node: "n", ephemeral: true, phase: v1.PodRunning, want: true},
	"ephemeral-succeeded":   {node: "n", ephemeral: true, phase: v1.PodSucceeded, want: true},
	"ephemeral-shut-down":   {node: "n", ephemeral: true, phase: v1.PodSucceeded, shutDown: true},
	"ephemeral-alien":       {node: "n", ephemeral: true, alien: true, phase: v1.PodRunning},
}

// start creates the pod and its claim, sets the pod's phase, and returns the claim's name.
func (c podCase) start(t *testing.T, s *testserver.Server, name string) (claim string) {
	t.Helper()
	core := s.Client.CoreV1()
	spec := v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/keep"}},
		Spec: v1.PodSpec{NodeName: c.node, Containers: []v1.Container{{Name: "c", Image: "i"}},
			Volumes: []v1.Volume{{Name: "v"}}},
	}
	if c.ephemeral {
		claim = name + "-v"
		pod.Spec.Volumes[0].Ephemeral = &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: spec}}
	} else {
		claim = name
		pod.Spec.Volumes[0].PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	}
	pod, err := core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}, Spec: spec}
	if c.ephemeral && !c.alien {
		o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))}
	}
	if _, err := core.PersistentVolumeClaims("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = c.phase
	if _, err := core.Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if c.shutDown {
		if err := core.Pods("default").Delete(t.Context(), name,
			metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			t.Fatal(err)
		}
	}
	return claim
}

// TestClaimsAreKeptWhileUsed deletes the claims of all podCases. Claims that no pod uses must
// disappear at once, the others only when their pods are deleted.
func TestClaimsAreKeptWhileUsed(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "pvc-protection-controller", controller.Options{}, NewClaims)
	core := s.Client.CoreV1()
	claims := map[string]string{}
	for name, c := range podCases {
		claims[name] = c.start(t, s, name)
	}
	// This claim is deleted after all others. When it has disappeared, the controller has handled
	// the others before it.
	unused := &podCase{}
	claims["last"] = unused.start(t, s, "last")
	for name := range podCases {
		if err := core.PersistentVolumeClaims("default").Delete(t.Context(), claims[name],
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	claimGone := func(pod string) func(context.Context) (any, bool) {
		return gone(core.PersistentVolumeClaims("default").Get, claims[pod])
	}
	for name, c := range podCases {
		if !c.want {
			controllertest.Eventually(t, "the claim of pod "+name+" is gone", claimGone(name))
		}
	}
	if err := core.PersistentVolumeClaims("default").Delete(t.Context(), claims["last"],
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the last claim is gone", claimGone("last"))
	for name, c := range podCases {
		if got, yes := claimGone(name)(t.Context()); c.want && yes {
			t.Errorf("pod %s: its claim was deleted while the pod object exists: %v", name, got)
		}
	}
	unpin := []byte(`{"metadata":{"finalizers":null}}`)
	for name := range podCases {
		if _, err := core.Pods("default").Patch(t.Context(), name, types.MergePatchType, unpin,
			metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		err := core.Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		controllertest.Eventually(t, "the claim is gone after pod "+name, claimGone(name))
	}
}

// TestUnseenPod checks that a claim that is being deleted loses the finalizer although the cache never
// shows the pod that has used it: another client deleted the pod while the watch was broken.
func TestUnseenPod(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	fake := clocktesting.NewFakeClock(time.Now())
	c, informers := controllertest.RunUnwatched[*claims](t, s, fake, NewClaims)
	pods, claims := s.Client.CoreV1().Pods("default"), s.Client.CoreV1().PersistentVolumeClaims("default")
	name := podCases["running"].start(t, s, "running")
	claim, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Finalizers = []string{string(claimFinalizer)}
	if _, err := claims.Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if claim, err = claims.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := informers.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(claim); err != nil {
		t.Fatal(err)
	}
	if err := c.sync(t.Context(), controller.Key(claim)); err != nil { // it finds the pod on the API server
		t.Fatal(err)
	}
	if _, err := pods.Patch(t.Context(), "running", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "running", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	claimGone := gone(claims.Get, name)
	controllertest.Eventually(t, "the claim is deleted", func(ctx context.Context) (any, bool) {
		fake.Step(time.Second)
		return claimGone(ctx)
	})
}
