// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/test/csi/driver"
)

// period is how often everything is looked at.
const period = 300 * time.Millisecond

// sidecars do for the driver what runs beside drivers elsewhere.
type sidecars struct {
	client kubernetes.Interface
	driver *driver.Driver
	log    *slog.Logger
}

func (c *sidecars) run(ctx context.Context) error {
	t := clock.Real().NewTicker(period)
	defer t.Stop()
	for {
		for what, look := range map[string]func(context.Context) error{
			"make": c.provision, "delete": c.reclaim, "attach": c.attach, "grow": c.grow,
		} {
			if err := look(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("Not done", "what", what, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

// provision makes volumes for the claims that the volume controller hands over.
func (c *sidecars) provision(ctx context.Context) error {
	claims, err := c.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Annotations[volume.AnnStorageProvisioner] != c.driver.Name || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
			continue
		}
		if err := c.provisionFor(ctx, claim); err != nil {
			c.log.Warn("No volume", "claim", claim.Name, "err", err)
		}
	}
	return nil
}

func (c *sidecars) provisionFor(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	class, err := c.client.StorageV1().StorageClasses().Get(ctx, volume.GetPersistentVolumeClaimClass(claim), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && claim.Annotations[volume.AnnSelectedNode] == "" {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	if _, err := c.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	source, err := c.source(ctx, claim)
	if err != nil {
		return err
	}
	fsType := class.Parameters["csi.storage.k8s.io/fstype"]
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	made, err := c.driver.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapabilities: []*csi.VolumeCapability{capability(claim.Spec.VolumeMode, claim.Spec.AccessModes)}, VolumeContentSource: source,
	})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{volume.AnnDynamicallyProvisioned: c.driver.Name}},
		Spec: v1.PersistentVolumeSpec{
			Capacity:    v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(made.GetVolume().GetCapacityBytes(), resource.BinarySI)},
			AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode, StorageClassName: class.Name, MountOptions: class.MountOptions,
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: c.driver.Name, VolumeHandle: made.GetVolume().GetVolumeId(), FSType: fsType,
			}},
		},
	}, metav1.CreateOptions{})
	return err
}

// source is what a claim's volume is to be made from, or nil.
func (c *sidecars) source(ctx context.Context, claim *v1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	from := claim.Spec.DataSource
	switch {
	case from == nil:
		return nil, nil
	case from.Kind == "VolumeSnapshot":
		id, err := c.snapshot(ctx, claim.Namespace, from.Name)
		if err != nil {
			return nil, err
		}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}, nil
	}
	other, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, from.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	v, err := c.client.CoreV1().PersistentVolumes().Get(ctx, other.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if v.Spec.CSI == nil || v.Spec.CSI.Driver != c.driver.Name {
		return nil, status.Errorf(codes.InvalidArgument, "volume %s is another driver's", v.Name)
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.Spec.CSI.VolumeHandle}}}, nil
}

func capability(mode *v1.PersistentVolumeMode, access []v1.PersistentVolumeAccessMode) *csi.VolumeCapability {
	out := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER}}
	switch {
	case slices.Contains(access, v1.ReadWriteMany):
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case slices.Contains(access, v1.ReadOnlyMany):
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case slices.Contains(access, v1.ReadWriteOncePod):
		out.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	if mode != nil && *mode == v1.PersistentVolumeBlock {
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		out.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	}
	return out
}

// mine lists the persistent volumes of the driver.
func (c *sidecars) mine(ctx context.Context) ([]v1.PersistentVolume, error) {
	list, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(v v1.PersistentVolume) bool { return v.Spec.CSI == nil || v.Spec.CSI.Driver != c.driver.Name }), nil
}

// reclaim deletes volumes that no claim has any more.
func (c *sidecars) reclaim(ctx context.Context) error {
	list, err := c.mine(ctx)
	if err != nil {
		return err
	}
	for _, v := range list {
		if v.Status.Phase != v1.VolumeReleased || v.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
			continue
		}
		if _, err := c.driver.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle}); err != nil {
			c.log.Warn("Volume is not deleted", "volume", v.Name, "err", err)
			continue
		}
		if err := c.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// attach attaches and detaches volumes.
func (c *sidecars) attach(ctx context.Context) error {
	attachments := c.client.StorageV1().VolumeAttachments()
	list, err := attachments.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	finalizer := "external-attacher/" + c.driver.Name
	for i := range list.Items {
		a := &list.Items[i]
		has := slices.Contains(a.Finalizers, finalizer)
		if a.Spec.Attacher != c.driver.Name || a.Spec.Source.PersistentVolumeName == nil || a.DeletionTimestamp != nil && !has || a.DeletionTimestamp == nil && a.Status.Attached {
			continue
		}
		if !has {
			a.Finalizers = append(a.Finalizers, finalizer)
			_, err = attachments.Update(ctx, a, metav1.UpdateOptions{})
		} else {
			err = c.work(ctx, a, finalizer)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			c.log.Warn("Attachment is not worked off", "attachment", a.Name, "err", err)
		}
	}
	return nil
}

// work has the driver attach or detach one volume.
func (c *sidecars) work(ctx context.Context, a *storagev1.VolumeAttachment, finalizer string) error {
	v, err := c.client.CoreV1().PersistentVolumes().Get(ctx, *a.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	attachments := c.client.StorageV1().VolumeAttachments()
	if a.DeletionTimestamp != nil {
		if _, err := c.driver.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle, NodeId: a.Spec.NodeName}); err != nil {
			return err
		}
		a.Finalizers = slices.DeleteFunc(a.Finalizers, func(f string) bool { return f == finalizer })
		_, err := attachments.Update(ctx, a, metav1.UpdateOptions{})
		return err
	}
	got, err := c.driver.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: v.Spec.CSI.VolumeHandle, NodeId: a.Spec.NodeName, VolumeCapability: capability(v.Spec.VolumeMode, v.Spec.AccessModes),
	})
	if err != nil {
		a.Status.AttachError = &storagev1.VolumeError{Time: metav1.NewTime(clock.Real().Now()), Message: err.Error()}
	} else {
		a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: got.GetPublishContext()}
	}
	_, err = attachments.UpdateStatus(ctx, a, metav1.UpdateOptions{})
	return err
}

// grow has volumes grow whose claims ask for more; what is on them the kubelet sees to.
func (c *sidecars) grow(ctx context.Context) error {
	list, err := c.mine(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		v := &list[i]
		if v.Spec.ClaimRef == nil || v.Status.Phase != v1.VolumeBound {
			continue
		}
		claim, err := c.client.CoreV1().PersistentVolumeClaims(v.Spec.ClaimRef.Namespace).Get(ctx, v.Spec.ClaimRef.Name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			continue // it is going
		}
		want, has := claim.Spec.Resources.Requests[v1.ResourceStorage], v.Spec.Capacity[v1.ResourceStorage]
		if want.Cmp(has) <= 0 || claim.UID != v.Spec.ClaimRef.UID {
			continue
		}
		got, err := c.driver.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: want.Value()}})
		if err != nil {
			c.log.Warn("Volume does not grow", "volume", v.Name, "err", err)
			continue
		}
		if err := c.grown(ctx, v, claim, got.GetCapacityBytes()); err != nil {
			return err
		}
	}
	return nil
}

// grown tells the claim first that the node has something to do: the volume's new size starts that.
func (c *sidecars) grown(ctx context.Context, v *v1.PersistentVolume, claim *v1.PersistentVolumeClaim, size int64) error {
	now := *resource.NewQuantity(size, resource.BinarySI)
	claim.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: now}
	claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{{
		Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(clock.Real().Now()),
		Message: "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
	}}
	if _, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	v.Spec.Capacity[v1.ResourceStorage] = now
	_, err := c.client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
	return err
}

// snapshotStatus is what is needed of snapshots and their contents.
type snapshotStatus struct {
	Status struct {
		BoundContent string `json:"boundVolumeSnapshotContentName"`
		Handle       string `json:"snapshotHandle"`
		Ready        bool   `json:"readyToUse"`
	} `json:"status"`
}

// snapshot is the driver's name of a snapshot.
func (c *sidecars) snapshot(ctx context.Context, namespace, name string) (string, error) {
	const api = "/apis/snapshot.storage.k8s.io/v1/"
	var s snapshotStatus
	if err := c.get(ctx, api+"namespaces/"+namespace+"/volumesnapshots/"+name, &s); err != nil {
		return "", err
	}
	if !s.Status.Ready {
		return "", status.Errorf(codes.Unavailable, "snapshot %s is not ready", name)
	}
	var content snapshotStatus
	err := c.get(ctx, api+"volumesnapshotcontents/"+s.Status.BoundContent, &content)
	return content.Status.Handle, err
}

func (c *sidecars) get(ctx context.Context, path string, into any) error {
	b, err := c.client.StorageV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}
