// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ephemeralvolume

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	r := prometheus.NewRegistry()
	controllertest.RunAs(t, s, "ephemeral-volume-controller", controller.Options{}, controllertest.WithMetrics(r, New))
	core := s.Client.CoreV1()
	spec := v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	claims := core.PersistentVolumeClaims("default")
	// This claim has the name of a pod's claim but does not belong to the pod, so it must not be
	// used.
	if _, err := claims.Create(t.Context(),
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "p-other"}, Spec: spec},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volume := func(name string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: spec},
		}}}
	}
	pod, err := core.Pods("default").Create(t.Context(),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", Image: "i"}}, Volumes: []v1.Volume{volume("data"), volume("other")},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var first types.UID
	made := func(ctx context.Context) (any, bool) {
		c, err := claims.Get(ctx, "p-data", metav1.GetOptions{})
		if err != nil || c.UID == first {
			return err, false
		}
		first = c.UID
		return c, metav1.IsControlledBy(c, pod) && c.Labels["a"] == "b"
	}
	controllertest.Eventually(t, "the claim is made", made)
	if _, err := claims.Patch(t.Context(), "p-data", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "p-data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "it is made again", made)
	controllertest.Eventually(t, "two creations are counted", func(context.Context) (any, bool) {
		got := controllertest.Metrics(t, r)
		const prefix = "ephemeral_volume_controller_create_"
		return got, got[prefix+"total"]-got[prefix+"failures_total"] == 2
	})
	other, err := claims.Get(t.Context(), "p-other", metav1.GetOptions{})
	if err != nil || len(other.OwnerReferences) > 0 {
		t.Errorf("another owner's claim: %v, %v", other, err)
	}
}

// TestReplacedPod checks that a pod gets its claim although the informer has reported it only as a change
// of an earlier pod of the same name. An informer does so after a broken watch.
func TestReplacedPod(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	c, informers := controllertest.RunUnwatched[*Controller](t, s, clock.Real(), New)
	spec := v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	pod, err := s.Client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}, Volumes: []v1.Volume{{Name: "data",
			VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
				VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: spec}}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := informers.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
		t.Fatal(err)
	}
	earlier := pod.DeepCopy()
	earlier.UID = "earlier"
	c.podChanged(earlier, pod)
	controllertest.Eventually(t, "the claim is made", func(ctx context.Context) (any, bool) {
		claim, err := s.Client.CoreV1().PersistentVolumeClaims("default").Get(ctx, "p-data", metav1.GetOptions{})
		return err, err == nil && metav1.IsControlledBy(claim, pod)
	})
}
