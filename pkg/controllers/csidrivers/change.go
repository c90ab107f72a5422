// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"fmt"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// syncAttributes changes the attributes of a claim's volume if the claim requests another
// VolumeAttributesClass.
func (c *Controller) syncAttributes(ctx context.Context, key string) error {
	claim, v, err := c.unfinished(key, attributesSettled)
	if claim == nil || err != nil {
		return err
	}
	claim = claim.DeepCopy() // updateAttributesStatus stores the result of each write in this copy
	target := attributes(claim)
	if target == "" {
		return c.updateAttributesStatus(ctx, claim, func(s *v1.PersistentVolumeClaimStatus) {
			s.Conditions = withoutConditions(s.Conditions, v1.PersistentVolumeClaimVolumeModifyingVolume)
		})
	}
	class, err := c.attributeClasses.Get(target)
	if apierrors.IsNotFound(err) {
		c.Events.Eventf(claim, v1.EventTypeWarning, "VolumeModifyFailed", "VAC %q does not exist.", target)
		return c.updateAttributesStatus(ctx, claim, func(s *v1.PersistentVolumeClaimStatus) {
			s.ModifyVolumeStatus = &v1.ModifyVolumeStatus{TargetVolumeAttributesClassName: target,
				Status: v1.PersistentVolumeClaimModifyVolumePending}
		})
	}
	if err != nil {
		return fmt.Errorf("class of attributes: %w", err)
	}
	return c.change(ctx, claim, v, class)
}

// attributesSettled reports whether the attributes of a claim's volume need no change, because the
// volume has the class that the claim requests, or because the driver rejected this class.
func attributesSettled(claim *v1.PersistentVolumeClaim) bool {
	want, has, s := ptr.Deref(claim.Spec.VolumeAttributesClassName, ""),
		ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, ""), claim.Status.ModifyVolumeStatus
	if s == nil {
		return want == has
	}
	return s.Status == v1.PersistentVolumeClaimModifyVolumeInfeasible && s.TargetVolumeAttributesClassName == want
}

// attributes returns the VolumeAttributesClass that a claim's volume must get next, or "" if it
// must not be changed. A change in progress is completed before a newly requested class is applied,
// unless the driver rejected the change for good.
func attributes(claim *v1.PersistentVolumeClaim) string {
	want, s := ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), claim.Status.ModifyVolumeStatus
	if s == nil || s.Status != v1.PersistentVolumeClaimModifyVolumeInProgress {
		return want
	}
	refused := slices.ContainsFunc(claim.Status.Conditions, func(x v1.PersistentVolumeClaimCondition) bool {
		return x.Type == v1.PersistentVolumeClaimVolumeModifyVolumeError && !mayContinue(x.Reason)
	})
	if refused && want != "" {
		return want
	}
	return s.TargetVolumeAttributesClassName
}

// mayContinue reports whether the driver may still be working on a call after it returned an error
// with this gRPC code.
func mayContinue(code string) bool {
	return slices.Contains([]string{
		codes.Canceled.String(), codes.DeadlineExceeded.String(), codes.Unavailable.String(),
		codes.ResourceExhausted.String(), codes.Aborted.String(),
	}, code)
}

// change changes the attributes of a claim's volume to those of class. It records in the claim's
// status that the change is in progress, calls the driver, and records the result.
func (c *Controller) change(ctx context.Context, claim *v1.PersistentVolumeClaim, v *v1.PersistentVolume,
	class *storagev1.VolumeAttributesClass) error {
	begun := c.modifying(fmt.Sprintf("Modifying volume to %q is in progress.", class.Name))
	err := c.updateAttributesStatus(ctx, claim, func(s *v1.PersistentVolumeClaimStatus) {
		s.ModifyVolumeStatus = &v1.ModifyVolumeStatus{TargetVolumeAttributesClassName: class.Name,
			Status: v1.PersistentVolumeClaimModifyVolumeInProgress}
		if !slices.ContainsFunc(s.Conditions, func(x v1.PersistentVolumeClaimCondition) bool {
			return x.Type == begun.Type
		}) {
			s.Conditions = append(s.Conditions, begun)
		}
	})
	if err != nil {
		return err
	}
	if err := c.modify(ctx, v, class); err != nil {
		c.Events.Eventf(claim, v1.EventTypeWarning, "VolumeModifyFailed", "%v", err)
		return c.reportChangeError(ctx, claim, class.Name, err)
	}
	if err := c.setVolumeClass(ctx, v, class.Name); err != nil {
		return err
	}
	err = c.updateAttributesStatus(ctx, claim, func(s *v1.PersistentVolumeClaimStatus) {
		s.ModifyVolumeStatus, s.CurrentVolumeAttributesClassName = nil, &class.Name
		s.Conditions = withoutConditions(s.Conditions, v1.PersistentVolumeClaimVolumeModifyingVolume,
			v1.PersistentVolumeClaimVolumeModifyVolumeError)
	})
	if err == nil {
		c.Events.Eventf(claim, v1.EventTypeNormal, "VolumeModifySuccessful",
			"external resizer modified volume %s with vac %s successfully", claim.Name, class.Name)
	}
	return err
}

// modify calls the driver to change the attributes of a volume.
func (c *Controller) modify(ctx context.Context, v *v1.PersistentVolume, class *storagev1.VolumeAttributesClass) error {
	driver := v.Spec.CSI.Driver
	if class.DriverName != driver {
		return status.Errorf(codes.InvalidArgument, "VAC %s is for driver %s, the volume is of %s", class.Name,
			class.DriverName, driver)
	}
	node, err := c.selectNode(driver, "", accessibleFrom(v.Spec.NodeAffinity))
	if err != nil {
		return err
	}
	able, err := c.abilities(ctx, node.Name, driver)
	if err != nil {
		return err
	}
	if !able[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME] {
		return status.Errorf(codes.InvalidArgument, "driver %s does not change volumes", driver)
	}
	req := &csi.ControllerModifyVolumeRequest{VolumeId: v.Spec.CSI.VolumeHandle, MutableParameters: class.Parameters}
	return c.callController(ctx, node.Name, driver, "ControllerModifyVolume", req, &csi.ControllerModifyVolumeResponse{})
}

// reportChangeError writes to the claim's status why the volume was not changed. It returns cause,
// so that the change is retried, unless the driver reported that the change can never succeed.
func (c *Controller) reportChangeError(ctx context.Context, claim *v1.PersistentVolumeClaim, class string,
	cause error) error {
	code := status.Code(cause)
	step, message := v1.PersistentVolumeClaimModifyVolumeInProgress,
		fmt.Sprintf("Modifying volume to %q failed. Waiting for retry.", class)
	switch {
	case code == codes.InvalidArgument:
		step = v1.PersistentVolumeClaimModifyVolumeInfeasible
	case mayContinue(code.String()):
		message = fmt.Sprintf("Modifying volume to %q is still in progress.", class)
	}
	failed := c.modifying(status.Convert(cause).Message())
	failed.Type, failed.Reason = v1.PersistentVolumeClaimVolumeModifyVolumeError, code.String()
	told := c.updateAttributesStatus(ctx, claim, func(s *v1.PersistentVolumeClaimStatus) {
		s.ModifyVolumeStatus = &v1.ModifyVolumeStatus{TargetVolumeAttributesClassName: class, Status: step}
		s.Conditions = append(withoutConditions(s.Conditions, v1.PersistentVolumeClaimVolumeModifyingVolume,
			failed.Type), c.modifying(message), failed)
	})
	if told != nil || step == v1.PersistentVolumeClaimModifyVolumeInfeasible {
		return told
	}
	return cause
}

func (c *Controller) modifying(message string) v1.PersistentVolumeClaimCondition {
	now := metav1.NewTime(c.Clock.Now())
	return v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimVolumeModifyingVolume, Status: v1.ConditionTrue, LastProbeTime: now,
		LastTransitionTime: now, Message: message,
	}
}

func withoutConditions(in []v1.PersistentVolumeClaimCondition,
	kinds ...v1.PersistentVolumeClaimConditionType) []v1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(in), func(x v1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(kinds, x.Type)
	})
}

// setVolumeClass sets the VolumeAttributesClass in the spec of a volume.
func (c *Controller) setVolumeClass(ctx context.Context, v *v1.PersistentVolume, class string) error {
	now, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	if ptr.Deref(now.Spec.VolumeAttributesClassName, "") == class {
		return nil
	}
	now.Spec.VolumeAttributesClassName = &class
	if _, err := c.Client.CoreV1().PersistentVolumes().Update(ctx, now, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("class of volume's attributes: %w", err)
	}
	return nil
}

// updateAttributesStatus applies change to the claim's status, writes it, and stores the result in
// claim.
func (c *Controller) updateAttributesStatus(ctx context.Context, claim *v1.PersistentVolumeClaim,
	change func(*v1.PersistentVolumeClaimStatus)) error {
	next := claim.DeepCopy()
	change(&next.Status)
	if equality.Semantic.DeepEqual(claim.Status, next.Status) {
		return nil
	}
	got, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("attributes of claim: %w", err)
	}
	*claim = *got
	return nil
}

// mutableParameters returns the parameters of the VolumeAttributesClass that a claim requests. Its
// volume is created with these parameters.
func (c *Controller) mutableParameters(claim *v1.PersistentVolumeClaim, able abilities,
	driver string) (map[string]string, error) {
	name := ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
	if name == "" {
		return nil, nil
	}
	class, err := c.attributeClasses.Get(name)
	if err != nil {
		return nil, fmt.Errorf("class of attributes: %w", err)
	}
	if class.DriverName != driver || !able[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME] {
		return nil, status.Errorf(codes.InvalidArgument,
			"VAC %s is for driver %s; the volume is to be of %s, which must be able to change volumes", name,
			class.DriverName, driver)
	}
	return class.Parameters, nil
}
