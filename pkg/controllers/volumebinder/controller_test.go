// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

type cluster struct {
	*testing.T
	client kubernetes.Interface
}

func start(t *testing.T) cluster {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "persistent-volume-binder", controller.Options{Workers: 4}, New)
	return cluster{t, s.Client}
}

func (c cluster) volume(name, size string, change func(*v1.PersistentVolume)) {
	c.Helper()
	v := vol(change)
	v.Name, v.Spec.Capacity, v.Status = name, storage(size), v1.PersistentVolumeStatus{}
	v.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/tmp/" + name}
	if _, err := c.client.CoreV1().PersistentVolumes().Create(c.Context(), v, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c cluster) claim(name, size string, change func(*v1.PersistentVolumeClaim)) {
	c.Helper()
	p := claim(change)
	p.Name, p.Namespace, p.UID, p.Spec.Resources.Requests = name, "default", "", storage(size)
	if _, err := c.client.CoreV1().PersistentVolumeClaims("default").Create(c.Context(), p,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c cluster) sees(claim string, ok func(*v1.PersistentVolumeClaim) bool) {
	c.Helper()
	controllertest.Eventually(c.T, "claim "+claim, func(ctx context.Context) (any, bool) {
		p, err := c.client.CoreV1().PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{})
		return p, err == nil && ok(p)
	})
}

func to(volume string) func(*v1.PersistentVolumeClaim) bool {
	return func(p *v1.PersistentVolumeClaim) bool {
		return p.Status.Phase == v1.ClaimBound && p.Spec.VolumeName == volume
	}
}

func (c cluster) phase(volume string, phase v1.PersistentVolumePhase) {
	c.Helper()
	controllertest.Eventually(c.T, "volume "+volume, func(ctx context.Context) (any, bool) {
		v, err := c.client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		return v, err == nil && v.Status.Phase == phase
	})
}

// remove deletes a claim. It also removes the finalizer that protects claims, because the
// controller that does so does not run here.
func (c cluster) remove(claim string) {
	c.Helper()
	claims := c.client.CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Patch(c.Context(), claim, "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
	if err := claims.Delete(c.Context(), claim, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

func TestStatic(t *testing.T) {
	c := start(t)
	c.volume("large", "9Gi", nil)
	c.volume("small", "2Gi", nil)
	c.volume("kept", "1Gi", func(v *v1.PersistentVolume) {
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "keeper"}
	})
	for _, name := range []string{"large", "small", "kept"} {
		c.phase(name, v1.VolumeAvailable)
	}
	c.claim("first", "1Gi", nil)
	c.sees("first", to("small"))
	c.claim("second", "1Gi", nil)
	c.sees("second", to("large"))
	c.sees("second", func(p *v1.PersistentVolumeClaim) bool {
		return p.Status.Capacity.Storage().String() == "9Gi" &&
			p.Annotations[volume.AnnBoundByController] == "yes" && p.Annotations[volume.AnnBindCompleted] == "yes"
	})
	c.claim("third", "1Gi", nil)
	c.sees("third", func(p *v1.PersistentVolumeClaim) bool { return p.Status.Phase == v1.ClaimPending })
	c.claim("keeper", "1Gi", nil)
	c.sees("keeper", to("kept"))
	c.volume("later", "1Gi", nil)
	c.sees("third", to("later"))
	c.phase("later", v1.VolumeBound)

	c.remove("third")
	c.phase("later", v1.VolumeReleased)
	if err := c.client.CoreV1().PersistentVolumes().Delete(t.Context(), "small", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().PersistentVolumes().Patch(t.Context(), "small",
		"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Logf("it is gone already: %v", err)
	}
	c.sees("first", func(p *v1.PersistentVolumeClaim) bool { return p.Status.Phase == v1.ClaimLost })
}

func TestMany(t *testing.T) {
	c := start(t)
	const n = 20
	for i := range n {
		c.claim(fmt.Sprint("c", i), "1Gi", nil)
		c.volume(fmt.Sprint("v", i), "1Gi", nil)
	}
	has := map[string]string{}
	for i := range n {
		c.sees(fmt.Sprint("c", i), func(p *v1.PersistentVolumeClaim) bool {
			if p.Status.Phase != v1.ClaimBound {
				return false
			}
			if other, taken := has[p.Spec.VolumeName]; taken {
				t.Fatalf("%s and %s have %s", other, p.Name, p.Spec.VolumeName)
			}
			has[p.Spec.VolumeName] = p.Name
			return true
		})
		c.phase(fmt.Sprint("v", i), v1.VolumeBound)
	}
}

func TestClasses(t *testing.T) {
	c := start(t)
	later := storagev1.VolumeBindingWaitForFirstConsumer
	class := func(name string, mode *storagev1.VolumeBindingMode, annotations map[string]string) {
		t.Helper()
		s := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Provisioner: "example.com/p", VolumeBindingMode: mode}
		if _, err := c.client.StorageV1().StorageClasses().Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	class("later", &later, nil)
	of := func(name *string) func(*v1.PersistentVolumeClaim) {
		return func(p *v1.PersistentVolumeClaim) { p.Spec.StorageClassName = name }
	}
	name := "later"
	c.claim("delayed", "1Gi", of(&name))
	c.claim("without", "1Gi", of(nil))
	handed := func(p *v1.PersistentVolumeClaim) bool {
		return p.Annotations[volume.AnnStorageProvisioner] == "example.com/p"
	}
	c.sees("delayed", func(p *v1.PersistentVolumeClaim) bool { return p.Status.Phase == v1.ClaimPending && !handed(p) })
	class("standard", nil, map[string]string{"storageclass.kubernetes.io/is-default-class": "true"})
	c.sees("without", func(p *v1.PersistentVolumeClaim) bool {
		return p.Spec.StorageClassName != nil && *p.Spec.StorageClassName == "standard" && handed(p)
	})
	if _, err := c.client.CoreV1().PersistentVolumeClaims("default").Patch(t.Context(), "delayed",
		"application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+volume.AnnSelectedNode+`":"n"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.sees("delayed", handed)
	// Create a volume that is reserved for the claim, as a provisioner does.
	p, err := c.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "delayed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.volume("made", "1Gi", func(v *v1.PersistentVolume) {
		v.Spec.StorageClassName, v.Spec.PersistentVolumeReclaimPolicy = "later", v1.PersistentVolumeReclaimDelete
		v.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
			Namespace: "default", Name: "delayed", UID: p.UID}
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, volume.AnnDynamicallyProvisioned, "example.com/p")
	})
	c.sees("delayed", to("made"))
	c.phase("made", v1.VolumeBound)
	c.remove("delayed")
	c.phase("made", v1.VolumeReleased)
}
