// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"fmt"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// unfinished returns a claim that is bound and for which the function done returns false, and the
// claim's volume. It returns nil if there is no such claim or if this controller does not manage
// the volume's driver.
func (c *Controller) unfinished(key string, done func(*v1.PersistentVolumeClaim) bool) (
	*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil || claim.Status.Phase != v1.ClaimBound || claim.DeletionTimestamp != nil || done(claim) {
		return nil, nil, err
	}
	v, err := c.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil || v.Spec.CSI == nil || !c.serves(v.Spec.CSI.Driver) || v.Spec.ClaimRef == nil ||
		v.Spec.ClaimRef.UID != claim.UID {
		return nil, nil, err
	}
	return claim, v, nil
}

// syncSize makes the driver expand a claim's volume if the claim requests more storage. The kubelet
// then expands the file system. The claim's status shows which of these two steps is next.
func (c *Controller) syncSize(ctx context.Context, key string) error {
	claim, v, err := c.unfinished(key, sizeSettled)
	if claim == nil || err != nil {
		return err
	}
	if allocated, nodes := nodesTurn(claim); nodes {
		// The volume is smaller if an earlier process was killed after it wrote the claim and
		// before it wrote the volume.
		if has := v.Spec.Capacity[v1.ResourceStorage]; has.Cmp(allocated) < 0 {
			return c.setVolumeSize(ctx, v, allocated)
		}
		return nil
	}
	return c.grow(ctx, claim, v)
}

// nodesTurn reports whether only the kubelet's step of an expansion remains. It also returns the
// size to which the driver has expanded the volume.
func nodesTurn(claim *v1.PersistentVolumeClaim) (resource.Quantity, bool) {
	want, allocated := claim.Spec.Resources.Requests[v1.ResourceStorage],
		claim.Status.AllocatedResources[v1.ResourceStorage]
	step := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	return allocated, allocated.Cmp(want) >= 0 && (step == v1.PersistentVolumeClaimNodeResizePending ||
		step == v1.PersistentVolumeClaimNodeResizeInProgress)
}

// sizeSettled reports whether the size of a claim's volume needs no change, because the volume has
// the requested size, or because that size was rejected as infeasible.
func sizeSettled(claim *v1.PersistentVolumeClaim) bool {
	want, allocated := claim.Spec.Resources.Requests[v1.ResourceStorage],
		claim.Status.AllocatedResources[v1.ResourceStorage]
	step := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	infeasible := step == v1.PersistentVolumeClaimControllerResizeInfeasible ||
		step == v1.PersistentVolumeClaimNodeResizeInfeasible
	return want.Cmp(claim.Status.Capacity[v1.ResourceStorage]) <= 0 || infeasible && allocated.Cmp(want) == 0
}

// target returns the size to which the driver must expand a claim's volume. It is the requested
// size, unless an expansion to a larger size is in progress, which must be completed first.
func target(claim *v1.PersistentVolumeClaim) resource.Quantity {
	want, allocated := claim.Spec.Resources.Requests[v1.ResourceStorage],
		claim.Status.AllocatedResources[v1.ResourceStorage]
	if claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimControllerResizeInProgress &&
		allocated.Cmp(want) > 0 {
		return allocated
	}
	return want
}

func (c *Controller) grow(ctx context.Context, claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume) error {
	size := target(claim)
	claim, err := c.updateSizeStatus(ctx, claim, size, v1.PersistentVolumeClaimControllerResizeInProgress,
		v1.PersistentVolumeClaimResizing, "")
	if err != nil {
		return err
	}
	got, err := c.expand(ctx, v, size)
	if err != nil {
		c.Events.Eventf(claim, v1.EventTypeWarning, "VolumeResizeFailed",
			"resize volume %q by resizer %q failed: %v", v.Name, v.Spec.CSI.Driver, err)
		if !nothingCreated(err) {
			return err
		}
		_, told := c.updateSizeStatus(ctx, claim, size, v1.PersistentVolumeClaimControllerResizeInfeasible,
			v1.PersistentVolumeClaimControllerResizeError, err.Error())
		return told
	}
	now := *resource.NewQuantity(got.GetCapacityBytes(), resource.BinarySI)
	if got.GetNodeExpansionRequired() {
		// Write the claim's status first, because the kubelet reads it when it sees the volume's
		// new size.
		_, err = c.updateSizeStatus(ctx, claim, now, v1.PersistentVolumeClaimNodeResizePending,
			v1.PersistentVolumeClaimFileSystemResizePending,
			"Waiting for user to (re-)start a pod to finish file system resize of volume on node.")
		if err == nil {
			c.Events.Event(claim, v1.EventTypeNormal, "FileSystemResizeRequired", "Require file system resize of volume on node")
			err = c.setVolumeSize(ctx, v, now)
		}
		return err
	}
	if err := c.setVolumeSize(ctx, v, now); err != nil {
		return err
	}
	if _, err := c.updateSizeStatus(ctx, claim, now, "", "", ""); err != nil {
		return err
	}
	c.Events.Event(claim, v1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	return nil
}

// expand calls the driver to expand a volume. If the driver can expand volumes only on nodes,
// expand does not call it, and returns that an expansion on the node is required.
func (c *Controller) expand(ctx context.Context, v *v1.PersistentVolume,
	size resource.Quantity) (*csi.ControllerExpandVolumeResponse, error) {
	driver := v.Spec.CSI.Driver
	node, err := c.selectNode(driver, "", accessibleFrom(v.Spec.NodeAffinity))
	if err != nil {
		return nil, err
	}
	able, err := c.abilities(ctx, node.Name, driver)
	if err != nil {
		return nil, err
	}
	if !able[csi.ControllerServiceCapability_RPC_EXPAND_VOLUME] {
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: size.Value(), NodeExpansionRequired: true}, nil
	}
	got := &csi.ControllerExpandVolumeResponse{}
	err = c.callController(ctx, node.Name, driver, "ControllerExpandVolume", &csi.ControllerExpandVolumeRequest{
		VolumeId: v.Spec.CSI.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: capabilityOf(v, able[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]),
	}, got)
	return got, err
}

// setVolumeSize sets the capacity in the spec of a volume, unless it is already that large.
func (c *Controller) setVolumeSize(ctx context.Context, v *v1.PersistentVolume, size resource.Quantity) error {
	now, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	if has := now.Spec.Capacity[v1.ResourceStorage]; has.Cmp(size) >= 0 {
		return nil
	}
	now.Spec.Capacity[v1.ResourceStorage] = size
	if _, err := c.Client.CoreV1().PersistentVolumes().Update(ctx, now, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("size of volume: %w", err)
	}
	return nil
}

// updateSizeStatus writes the progress of a claim's expansion to size: the step that is next, or ""
// if the expansion is complete, and a condition with a message.
func (c *Controller) updateSizeStatus(ctx context.Context, claim *v1.PersistentVolumeClaim,
	size resource.Quantity, step v1.ClaimResourceStatus,
	condition v1.PersistentVolumeClaimConditionType, message string,
) (*v1.PersistentVolumeClaim, error) {
	next := claim.DeepCopy()
	s := &next.Status
	set(&s.AllocatedResources, v1.ResourceStorage, size)
	if step == "" {
		set(&s.Capacity, v1.ResourceStorage, size)
		delete(s.AllocatedResourceStatuses, v1.ResourceStorage)
	} else {
		set(&s.AllocatedResourceStatuses, v1.ResourceStorage, step)
	}
	since := metav1.NewTime(c.Clock.Now())
	for _, old := range s.Conditions {
		if old.Type == condition {
			since = old.LastTransitionTime
		}
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(x v1.PersistentVolumeClaimCondition) bool {
		return x.Type == v1.PersistentVolumeClaimResizing ||
			x.Type == v1.PersistentVolumeClaimFileSystemResizePending || x.Type == v1.PersistentVolumeClaimControllerResizeError
	})
	if condition != "" {
		s.Conditions = append(s.Conditions,
			v1.PersistentVolumeClaimCondition{Type: condition, Status: v1.ConditionTrue,
				LastTransitionTime: since, Message: message})
	}
	if equality.Semantic.DeepEqual(claim.Status, next.Status) {
		return claim, nil
	}
	got, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return claim, fmt.Errorf("size of claim: %w", err)
	}
	return got, nil
}

func set[M ~map[K]V, K comparable, V any](m *M, key K, value V) {
	if *m == nil {
		*m = M{}
	}
	(*m)[key] = value
}
