// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// preResize is the annotation of a volume with the size that it had before it was expanded. The
// volume has it as long as the claim's status does not show the new size.
const preResize = "volume.alpha.kubernetes.io/pre-resize-capacity"

// bind writes those parts of the binding of a volume and a claim that are missing.
func (c *Controller) bind(ctx context.Context, v *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) error {
	bound, dirty, err := volume.GetBindVolumeToClaim(v, claim)
	if err != nil {
		return fmt.Errorf("bind volume %s: %w", v.Name, err)
	}
	if dirty {
		if v, err = c.Client.CoreV1().PersistentVolumes().Update(ctx, bound, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("bind volume %s: %w", bound.Name, err)
		}
	}
	if v, err = c.setPhase(ctx, v, v1.VolumeBound, ""); err != nil {
		return err
	}
	if next, dirty := boundClaim(claim, v); dirty {
		if claim, err = c.updateClaim(ctx, next); err != nil {
			return err
		}
	}
	_, err = c.setClaimStatus(ctx, claim, v1.ClaimBound, v)
	return err
}

// boundClaim returns a copy of the claim that is bound to the volume, and whether it differs from
// the claim.
func boundClaim(claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume) (*v1.PersistentVolumeClaim, bool) {
	out, dirty := claim.DeepCopy(), false
	if claim.Spec.VolumeName != v.Name {
		out.Spec.VolumeName, dirty = v.Name, true
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, volume.AnnBoundByController, "yes")
	}
	if !metav1.HasAnnotation(out.ObjectMeta, volume.AnnBindCompleted) {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, volume.AnnBindCompleted, "yes")
		dirty = true
	}
	return out, dirty
}

// unbind removes the claim from a volume, because the claim is bound to another volume. If a user
// had reserved the volume for the claim's name, that reservation remains.
func (c *Controller) unbind(ctx context.Context, v *v1.PersistentVolume) error {
	next := v.DeepCopy()
	if metav1.HasAnnotation(v.ObjectMeta, volume.AnnBoundByController) {
		next.Spec.ClaimRef = nil
		delete(next.Annotations, volume.AnnBoundByController)
	} else {
		next.Spec.ClaimRef.UID = ""
	}
	next, err := c.Client.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("unbind volume %s: %w", v.Name, err)
	}
	_, err = c.setPhase(ctx, next, v1.VolumeAvailable, "")
	return err
}

// assignProvisioner sets the annotation of a claim with the provisioner that must create its
// volume.
func (c *Controller) assignProvisioner(ctx context.Context, claim *v1.PersistentVolumeClaim, provisioner string) error {
	next := claim.DeepCopy()
	for _, name := range []string{volume.AnnBetaStorageProvisioner, volume.AnnStorageProvisioner} {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, name, provisioner)
	}
	if equality.Semantic.DeepEqual(claim.Annotations, next.Annotations) {
		return nil
	}
	_, err := c.updateClaim(ctx, next)
	return err
}

func (c *Controller) updateClaim(ctx context.Context, claim *v1.PersistentVolumeClaim) (
	*v1.PersistentVolumeClaim, error) {
	got, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return got, nil
}

func (c *Controller) setPhase(ctx context.Context, v *v1.PersistentVolume, phase v1.PersistentVolumePhase,
	message string) (*v1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	next := v.DeepCopy()
	next.Status.Phase, next.Status.Message = phase, message
	got, err := c.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("phase of volume %s: %w", v.Name, err)
	}
	return got, nil
}

func (c *Controller) setClaimStatus(ctx context.Context, claim *v1.PersistentVolumeClaim,
	phase v1.PersistentVolumeClaimPhase, v *v1.PersistentVolume) (*v1.PersistentVolumeClaim, error) {
	want := claimStatus(claim, phase, v)
	if equality.Semantic.DeepEqual(claim.Status, want) {
		return claim, nil
	}
	next := claim.DeepCopy()
	next.Status = want
	got, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("status of claim: %w", err)
	}
	return got, nil
}

// claimStatus returns a claim's status with the given phase, for a claim that is bound to v or, if
// v is nil, to no volume. The size and the attributes class are set only when the claim becomes
// bound. Later the components that expand and modify volumes set them.
func claimStatus(claim *v1.PersistentVolumeClaim, phase v1.PersistentVolumeClaimPhase,
	v *v1.PersistentVolume) v1.PersistentVolumeClaimStatus {
	out := *claim.Status.DeepCopy()
	out.Phase = phase
	if v == nil {
		out.AccessModes, out.Capacity, out.CurrentVolumeAttributesClassName = nil, nil, nil
		return out
	}
	out.AccessModes = slices.Clone(v.Spec.AccessModes)
	if claim.Status.Phase == phase {
		return out
	}
	if text, ok := v.Annotations[preResize]; ok {
		size, err := resource.ParseQuantity(text)
		if err != nil {
			size = v.Spec.Capacity[v1.ResourceStorage]
		}
		if out.Capacity == nil {
			out.Capacity = v1.ResourceList{}
		}
		out.Capacity[v1.ResourceStorage] = size
	} else if has, ok := claim.Status.Capacity[v1.ResourceStorage]; !ok ||
		has.Cmp(v.Spec.Capacity[v1.ResourceStorage]) != 0 {
		out.Capacity = v.Spec.Capacity.DeepCopy()
	}
	if claim.Status.Phase == v1.ClaimPending {
		out.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	return out
}
