// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// nodeID is the annotation of a VolumeAttachment with the driver's ID of the node. It is needed to
// detach the volume when the node was already deleted.
const nodeID = "csi.alpha.kubernetes.io/node-id"

// attacherFinalizer returns the finalizer that this controller sets on a VolumeAttachment and its
// volume before it asks the driver to attach the volume.
func attacherFinalizer(driver string) string { return "external-attacher/" + driver }

// syncAttachment attaches or detaches a volume, as the VolumeAttachment with the given name
// requires.
func (c *Controller) syncAttachment(ctx context.Context, name string) error {
	a, err := c.attachments.Get(name)
	if apierrors.IsNotFound(err) || err == nil &&
		(a.Spec.Source.PersistentVolumeName == nil || !c.serves(a.Spec.Attacher)) {
		return nil
	}
	if err != nil {
		return err
	}
	mine := slices.Contains(a.Finalizers, attacherFinalizer(a.Spec.Attacher))
	switch {
	case a.DeletionTimestamp != nil && mine:
		err = c.detach(ctx, a.DeepCopy())
		if err != nil {
			return c.reportAttachError(ctx, a, err,
				func(s *storagev1.VolumeAttachmentStatus, e *storagev1.VolumeError) { s.DetachError = e })
		}
	case a.DeletionTimestamp == nil && !a.Status.Attached:
		err = c.attach(ctx, a.DeepCopy(), mine)
		if err != nil {
			return c.reportAttachError(ctx, a, err,
				func(s *storagev1.VolumeAttachmentStatus, e *storagev1.VolumeError) { s.AttachError = e })
		}
	}
	return nil
}

// reportAttachError writes the error cause to the status of a VolumeAttachment and returns cause.
// The function set stores it as an attach error or a detach error.
func (c *Controller) reportAttachError(ctx context.Context, a *storagev1.VolumeAttachment, cause error,
	set func(*storagev1.VolumeAttachmentStatus, *storagev1.VolumeError)) error {
	if apierrors.IsConflict(cause) {
		return cause
	}
	now, err := c.Client.StorageV1().VolumeAttachments().Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil || now.UID != a.UID {
		return cause
	}
	old := now.Status
	e := &storagev1.VolumeError{Time: metav1.NewTime(c.Clock.Now()), Message: cause.Error()}
	if s, ok := status.FromError(cause); ok {
		// The kubelet reads this code: ResourceExhausted means that the node has no room for more
		// volumes.
		e.ErrorCode = ptr.To(int32(s.Code()))
	}
	set(&now.Status, e)
	if sameError(old.AttachError, now.Status.AttachError) && sameError(old.DetachError, now.Status.DetachError) {
		return cause // do not write the same error again: the write would cause an event, and so an immediate retry
	}
	if _, err := c.Client.StorageV1().VolumeAttachments().UpdateStatus(ctx, now,
		metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%w (failed to write this to the status: %w)", cause, err)
	}
	return cause
}

func sameError(a, b *storagev1.VolumeError) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Message == b.Message && ptr.Equal(a.ErrorCode, b.ErrorCode))
}

// attach adds the finalizers to the volume and the VolumeAttachment and then calls the driver.
// marked means that the VolumeAttachment has its finalizer already.
func (c *Controller) attach(ctx context.Context, a *storagev1.VolumeAttachment, marked bool) error {
	v, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, *a.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	driver := a.Spec.Attacher
	if v.Spec.CSI == nil || v.Spec.CSI.Driver != driver || v.DeletionTimestamp != nil {
		return fmt.Errorf("volume %s is not of driver %s, or is being deleted", v.Name, driver)
	}
	n, err := c.csiNodes.Get(a.Spec.NodeName)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	there := registered(n, driver)
	if there == nil {
		return fmt.Errorf("CSINode %s does not contain driver %s", n.Name, driver)
	}
	if f := attacherFinalizer(driver); !slices.Contains(v.Finalizers, f) {
		v.Finalizers = append(v.Finalizers, f)
		if v, err = c.Client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("finalizer of volume: %w", err)
		}
	}
	if !marked {
		a.Finalizers = append(a.Finalizers, attacherFinalizer(driver))
		metav1.SetMetaDataAnnotation(&a.ObjectMeta, nodeID, there.NodeID)
		if a, err = c.Client.StorageV1().VolumeAttachments().Update(ctx, a, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("finalizer of attachment: %w", err)
		}
	}
	node, err := c.selectNode(driver, "", accessibleFrom(v.Spec.NodeAffinity))
	if err != nil {
		return err
	}
	able, err := c.abilities(ctx, node.Name, driver)
	if err != nil {
		return err
	}
	got := &csi.ControllerPublishVolumeResponse{}
	if able[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME] {
		err = c.callController(ctx, node.Name, driver, "ControllerPublishVolume", &csi.ControllerPublishVolumeRequest{
			VolumeId: v.Spec.CSI.VolumeHandle, NodeId: there.NodeID, VolumeContext: v.Spec.CSI.VolumeAttributes,
			VolumeCapability: capabilityOf(v, able[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]),
		}, got)
	}
	if err != nil {
		return err
	}
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: maps.Clone(got.GetPublishContext())}
	if _, err := c.Client.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status of attachment: %w", err)
	}
	return nil
}

// detach calls the driver to detach a volume and then removes the finalizer from the
// VolumeAttachment.
func (c *Controller) detach(ctx context.Context, a *storagev1.VolumeAttachment) error {
	v, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, *a.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("volume: %w", err)
	}
	if err == nil && v.Spec.CSI != nil {
		if err := c.unpublish(ctx, a, v); err != nil {
			return err
		}
	}
	a.Finalizers = slices.DeleteFunc(a.Finalizers, func(f string) bool { return f == attacherFinalizer(a.Spec.Attacher) })
	if _, err := c.Client.StorageV1().VolumeAttachments().Update(ctx, a, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer of attachment: %w", err)
	}
	return nil
}

func (c *Controller) unpublish(ctx context.Context, a *storagev1.VolumeAttachment, v *v1.PersistentVolume) error {
	driver := a.Spec.Attacher
	node, err := c.selectNode(driver, "", accessibleFrom(v.Spec.NodeAffinity))
	if err != nil {
		return err
	}
	able, err := c.abilities(ctx, node.Name, driver)
	if err != nil {
		return err
	}
	if able[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME] {
		req := &csi.ControllerUnpublishVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle, NodeId: a.Annotations[nodeID]}
		if err := c.callController(ctx, node.Name, driver, "ControllerUnpublishVolume", req,
			&csi.ControllerUnpublishVolumeResponse{}); err != nil {
			return err
		}
	}
	return nil
}
