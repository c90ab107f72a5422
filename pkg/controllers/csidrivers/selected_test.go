// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestSelectedNodeGone checks claims with a selected node that does not exist any more. A claim
// without a volume must lose this selection, so that the scheduler selects another node. A claim
// that is being deleted and may have a volume must disappear, and no volume may be left over.
func TestSelectedNodeGone(t *testing.T) {
	s := newStage(t)
	o := &order{id: "o", policy: v1.PersistentVolumeReclaimDelete, delayed: true}
	if err := s.surroundings(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		node, csiNode bool
	}{"no-node": {csiNode: true}, "no-csinode": {node: true}, "neither": {}} {
		if c.node {
			if _, err := s.Client.CoreV1().Nodes().Create(t.Context(),
				&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if c.csiNode {
			if _, err := s.Client.StorageV1().CSINodes().Create(t.Context(),
				&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		claims := s.Client.CoreV1().PersistentVolumeClaims("default")
		begun, fresh := claim(name+"-begun"), claim(name)
		for _, pvc := range []*v1.PersistentVolumeClaim{begun, fresh} {
			pvc.Spec.StorageClassName = ptr.To("o")
			pvc.Annotations = map[string]string{volume.AnnSelectedNode: name}
		}
		// An earlier process had begun to create a volume for this claim. Then a user deleted the
		// claim.
		begun.Finalizers = []string{provisioningFinalizer}
		begun.Annotations[volume.AnnStorageProvisioner] = "o"
		begun, err := claims.Create(t.Context(), begun, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := claims.Delete(t.Context(), begun.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := claims.Create(t.Context(), fresh, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, name+": the selection is taken back", func(ctx context.Context) (any, bool) {
			got, err := claims.Get(ctx, name, metav1.GetOptions{})
			return got, err == nil && !metav1.HasAnnotation(got.ObjectMeta, volume.AnnSelectedNode)
		})
		controllertest.Eventually(t, name+": the deleted claim is gone", func(ctx context.Context) (any, bool) {
			got, err := claims.Get(ctx, begun.Name, metav1.GetOptions{})
			return got, apierrors.IsNotFound(err)
		})
		if s.storage.get(s.storage.exists, volumeName(begun)) {
			t.Errorf("%s: a volume without an object is left", name)
		}
	}
}
