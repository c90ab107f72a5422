// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"fmt"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

// syncVolume adds deletionFinalizer to bound volumes, deletes the storage of volumes that are
// released, and removes the finalizers from volumes that are being deleted.
func (c *Controller) syncVolume(ctx context.Context, name string) error {
	v, err := c.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if v.Spec.CSI == nil || !c.serves(v.Spec.CSI.Driver) {
		return nil
	}
	if v, err = c.protect(ctx, v); err != nil || v == nil {
		return err
	}
	going, erases := v.DeletionTimestamp != nil, mustErase(v)
	if !erases && (!going || v.Status.Phase == v1.VolumeBound) {
		return nil
	}
	users, err := c.bySource.ByIndex(bySource, v.Name)
	if err != nil {
		return fmt.Errorf("attachments of volume: %w", err)
	}
	if len(users) > 0 {
		c.Events.Eventf(v, v1.EventTypeWarning, "VolumeFailedDelete",
			"persistentvolume %s is still attached to node %s", v.Name, users[0].(*storagev1.VolumeAttachment).Spec.NodeName)
		return nil // the event of the VolumeAttachment's deletion queues the volume again
	}
	if erases {
		if err := c.erase(ctx, v); err != nil {
			c.Events.Event(v, v1.EventTypeWarning, "VolumeFailedDelete", err.Error())
			return err
		}
	}
	if !going {
		err := c.Client.CoreV1().PersistentVolumes().Delete(ctx, v.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete volume: %w", err)
		}
	}
	return c.removeFinalizers(ctx, v)
}

// reclaimed reports whether this controller must delete the storage of a volume some day: its
// reclaim policy is Delete, and either its driver provisioned it or an administrator created the
// PersistentVolume.
func reclaimed(v *v1.PersistentVolume) bool {
	by, provisioned := v.Annotations[volume.AnnDynamicallyProvisioned]
	return v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete &&
		(!provisioned || by == v.Spec.CSI.Driver)
}

// mustErase reports whether the driver must delete the storage of a volume now. It must if the
// volume's claim was deleted (phase Released), or if a provisioned volume is being deleted before
// it was bound. If a volume is being deleted and has no deletionFinalizer, its storage was deleted
// already or must be kept.
func mustErase(v *v1.PersistentVolume) bool {
	going := v.DeletionTimestamp != nil
	if !reclaimed(v) || going && !slices.Contains(v.Finalizers, deletionFinalizer) {
		return false
	}
	unused := going && v.Status.Phase != v1.VolumeBound &&
		metav1.HasAnnotation(v.ObjectMeta, volume.AnnDynamicallyProvisioned)
	return v.Status.Phase == v1.VolumeReleased || unused
}

// protect adds deletionFinalizer to a bound volume whose storage must be deleted later, and removes
// it if the reclaim policy is no longer Delete. It returns the volume after the change, or nil if
// it was deleted.
func (c *Controller) protect(ctx context.Context, v *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	next, has := v.DeepCopy(), slices.Contains(v.Finalizers, deletionFinalizer)
	switch {
	case !has && reclaimed(v) && v.DeletionTimestamp == nil && v.Status.Phase == v1.VolumeBound:
		next.Finalizers = append(next.Finalizers, deletionFinalizer)
	case has && v.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete:
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == deletionFinalizer })
	default:
		return v, nil
	}
	got, err := c.Client.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finalizer of volume: %w", err)
	}
	return got, nil
}

// erase calls the driver to delete the storage of a volume.
func (c *Controller) erase(ctx context.Context, v *v1.PersistentVolume) error {
	node, err := c.selectNode(v.Spec.CSI.Driver, "", accessibleFrom(v.Spec.NodeAffinity))
	if err != nil {
		return err
	}
	return c.callController(ctx, node.Name, v.Spec.CSI.Driver, "DeleteVolume",
		&csi.DeleteVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle}, &csi.DeleteVolumeResponse{})
}

// removeFinalizers removes this controller's finalizers from a volume that is being deleted.
func (c *Controller) removeFinalizers(ctx context.Context, v *v1.PersistentVolume) error {
	ours := func(f string) bool { return f == deletionFinalizer || f == attacherFinalizer(v.Spec.CSI.Driver) }
	now, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (now.UID != v.UID || !slices.ContainsFunc(now.Finalizers, ours)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	now.Finalizers = slices.DeleteFunc(now.Finalizers, ours)
	if _, err = c.Client.CoreV1().PersistentVolumes().Update(ctx, now, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizers of volume: %w", err)
	}
	return nil
}
