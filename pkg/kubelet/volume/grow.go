// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"keelson.dev/keelson/pkg/kubelet/csi"
)

// Reasons of the events about volumes that grow.
const (
	reasonGrown    = "FileSystemResizeSuccessful"
	reasonNotGrown = "VolumeResizeFailed"
)

// persistent is the volume of a claim that can grow, or nil.
func (p prepared) persistent() *v1.PersistentVolume {
	if p.driven != nil {
		return p.driven.PV
	}
	return p.local
}

// grow has what is on a claim's volume grow, if the volume has, and tells the claim.
func (m *Manager) grow(ctx context.Context, pod *v1.Pod, v *v1.Volume, p prepared) error {
	pvc, pv, err := m.readClaim(ctx, pod, claimName(pod, v), metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil // the claim is going: its pods' volumes stay as they are
	}
	if !toGrow(pvc, pv) || pv.UID != p.persistent().UID {
		return nil
	}
	return m.expand(ctx, pod, pvc, pv, p)
}

// claimName is the name of the claim of a pod's volume, or "".
func claimName(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// toGrow reports whether a volume has grown and what is on it has not. What was found
// impossible is left alone until the control plane asks again.
func toGrow(pvc *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) bool {
	if pvc.Status.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimNodeResizeInfeasible {
		return false
	}
	has, there := pvc.Status.Capacity[v1.ResourceStorage]
	return there && has.Cmp(pv.Spec.Capacity[v1.ResourceStorage]) < 0
}

func (m *Manager) expand(ctx context.Context, pod *v1.Pod, pvc *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, p prepared) error {
	if p.readOnly {
		m.warn(pod, fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : requested read-only file system", pv.Name))
		return nil
	}
	// Before anything grows: whoever asks for less meanwhile learns that it may have been done.
	err := m.claimStatus(ctx, pvc, func(s *v1.PersistentVolumeClaimStatus) { resizing(s, v1.PersistentVolumeClaimNodeResizeInProgress) })
	if err != nil {
		return err
	}
	if err = m.enlarge(ctx, pod, pv, p); err != nil {
		m.warn(pod, fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err))
		if !csi.Final(err) {
			return err
		}
		never := infeasible(err) || takenBack(pvc, pv)
		told := m.claimStatus(ctx, pvc, func(s *v1.PersistentVolumeClaimStatus) { refused(s, err, never, m.cfg.Clock.Now()) })
		if never {
			return told
		}
		return errors.Join(err, told)
	}
	size := pv.Spec.Capacity[v1.ResourceStorage]
	err = m.claimStatus(ctx, pvc, func(s *v1.PersistentVolumeClaimStatus) {
		if s.Capacity == nil {
			s.Capacity = v1.ResourceList{}
		}
		s.Capacity[v1.ResourceStorage] = size
		delete(s.AllocatedResourceStatuses, v1.ResourceStorage)
		s.Conditions = slices.DeleteFunc(s.Conditions, aboutSize)
	})
	if err == nil && m.cfg.Event != nil {
		m.cfg.Event(pod, v1.EventTypeNormal, reasonGrown, fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q", pv.Name))
	}
	return err
}

// enlarge has what is on a volume fill it: the driver does, or the node if the volume is its own.
func (m *Manager) enlarge(ctx context.Context, pod *v1.Pod, pv *v1.PersistentVolume, p prepared) error {
	if p.driven == nil {
		return enlargeLocal(pv, p.path)
	}
	driven := *p.driven
	driven.PV = pv
	return m.cfg.Drivers.Expand(ctx, pod, driven)
}

func (m *Manager) warn(pod *v1.Pod, message string) {
	if m.cfg.Event != nil {
		m.cfg.Event(pod, v1.EventTypeWarning, reasonNotGrown, message)
	}
}

func aboutSize(c v1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing,
		v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError:
		return true
	default:
		return false
	}
}

// infeasible reports whether a driver says that it will never do what it was asked for.
func infeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		return true
	default:
		return false
	}
}

// takenBack reports whether a driver has failed before, and the claim asks for another size
// since. The control plane looks at that only when the node has given the present one up.
func takenBack(pvc *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) bool {
	asked := pvc.Spec.Resources.Requests[v1.ResourceStorage]
	return asked.Cmp(pv.Spec.Capacity[v1.ResourceStorage]) != 0 && slices.ContainsFunc(pvc.Status.Conditions, nodeFailed)
}

func nodeFailed(c v1.PersistentVolumeClaimCondition) bool {
	return c.Type == v1.PersistentVolumeClaimNodeResizeError
}

// inUse reports whether a driver cannot let a volume grow that pods use.
func inUse(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// resizing notes how far the growing of a claim's volume is.
func resizing(s *v1.PersistentVolumeClaimStatus, step v1.ClaimResourceStatus) {
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[v1.ResourceStorage] = step
}

// refused notes that what is on the volume did not grow, or that it never can.
func refused(s *v1.PersistentVolumeClaimStatus, err error, never bool, at time.Time) {
	if never {
		resizing(s, v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, nodeFailed)
	s.Conditions = append(s.Conditions, v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at), Message: err.Error(),
	})
}

// claimStatus changes the status of a claim, unless another one has its name now.
func (m *Manager) claimStatus(ctx context.Context, pvc *v1.PersistentVolumeClaim, change func(*v1.PersistentVolumeClaimStatus)) error {
	claims := m.cfg.Client.CoreV1().PersistentVolumeClaims(pvc.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := claims.Get(ctx, pvc.Name, metav1.GetOptions{})
		if err != nil || now.UID != pvc.UID {
			return err
		}
		want := now.DeepCopy()
		change(&want.Status)
		if equality.Semantic.DeepEqual(now, want) {
			return nil
		}
		_, err = claims.UpdateStatus(ctx, want, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("size of claim %s: %w", pvc.Name, err)
	}
	return nil
}
