// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestClassesOfClaim(t *testing.T) {
	asked, has := "asked", "has"
	claim := &v1.PersistentVolumeClaim{
		Spec: v1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &asked},
		Status: v1.PersistentVolumeClaimStatus{
			CurrentVolumeAttributesClassName: &has,
			ModifyVolumeStatus:               &v1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "given"},
		},
	}
	if got := classesOfClaim(claim); !slices.Equal(got, []string{"asked", "has", "given"}) {
		t.Errorf("got %v", got)
	}
	if got := classesOfClaim(&v1.PersistentVolumeClaim{}); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestAttributesClasses checks that a deleted VolumeAttributesClass stays until the claim that names it
// is deleted.
func TestAttributesClasses(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "volumeattributesclass-protection-controller", controller.Options{}, NewAttributesClasses)
	classes := s.Client.StorageV1().VolumeAttributesClasses()
	for _, name := range []string{"used", "free"} {
		class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "d",
			Parameters: map[string]string{"a": "b"}}
		if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	used := "used"
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, VolumeAttributesClassName: &used,
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	claims := s.Client.CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"used", "free"} {
		if err := classes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Eventually(t, "the class that nobody names goes", gone(classes.Get, "free"))
	if got, yes := gone(classes.Get, "used")(t.Context()); yes {
		t.Fatalf("the class that a claim names was deleted: %v", got)
	}
	// Remove the finalizer that protects claims, because the controller that does so does not run
	// here.
	if _, err := claims.Patch(t.Context(), "c", "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the class goes after the claim", gone(classes.Get, "used"))
}
