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

// Reasons of events about growing volumes.
const (
	reasonGrown    = "FileSystemResizeSuccessful"
	reasonNotGrown = "VolumeResizeFailed"
)

// persistent returns the PersistentVolume behind a CSI or local volume of a claim. It returns nil
// for other volumes, which cannot grow.
func (p prepared) persistent() *v1.PersistentVolume {
	if p.driven != nil {
		return p.driven.PV
	}
	return p.local
}

// grow grows the file system on a claim's volume if the volume has grown, and updates the claim's
// status.
func (m *Manager) grow(ctx context.Context, pod *v1.Pod, v *v1.Volume, p prepared) error {
	pvc, pv, err := m.readClaim(ctx, pod, claimName(pod, v), metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil // the claim is missing or no longer bound to the volume, so there is nothing to grow
	}
	if !needsGrowth(pvc, pv) || pv.UID != p.persistent().UID {
		return nil
	}
	return m.expand(ctx, pod, pvc, pv, p)
}

// claimName returns the name of the claim of a pod's volume, or "" if the volume has no claim.
func claimName(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// needsGrowth reports whether a volume is larger than the size in the claim's status, so that the
// file system on it must grow. It returns false while the status says NodeResizeInfeasible, which
// remains until the control plane requests the growth again.
func needsGrowth(pvc *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) bool {
	if pvc.Status.AllocatedResourceStatuses[v1.ResourceStorage] == v1.PersistentVolumeClaimNodeResizeInfeasible {
		return false
	}
	has, there := pvc.Status.Capacity[v1.ResourceStorage]
	return there && has.Cmp(pv.Spec.Capacity[v1.ResourceStorage]) < 0
}

func (m *Manager) expand(ctx context.Context, pod *v1.Pod, pvc *v1.PersistentVolumeClaim,
	pv *v1.PersistentVolume, p prepared) error {
	if p.readOnly {
		m.warn(pod, fmt.Sprintf(
			"NodeExpandVolume.NodeExpandVolume failed for volume %q : requested read-only file system", pv.Name))
		return nil
	}
	// Write this status before the file system grows. If the size in the claim is reduced
	// meanwhile, the control plane then knows that the volume may already have the larger size.
	err := m.claimStatus(ctx, pvc, func(s *v1.PersistentVolumeClaimStatus) {
		resizing(s, v1.PersistentVolumeClaimNodeResizeInProgress)
	})
	if err != nil {
		return err
	}
	if err = m.enlarge(ctx, pod, pv, p); err != nil {
		m.warn(pod, fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err))
		if !csi.IsFinal(err) {
			return err
		}
		never := infeasible(err) || shrunkAfterFailure(pvc, pv)
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
		m.cfg.Event(pod, v1.EventTypeNormal, reasonGrown,
			fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q", pv.Name))
	}
	return err
}

// enlarge grows the file system on a volume to the volume's size. The CSI driver does this, or the
// kubelet itself for a local volume.
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

// infeasible reports whether a driver's error means that a retry of the request cannot succeed.
func infeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		return true
	default:
		return false
	}
}

// shrunkAfterFailure reports whether the driver has failed to grow the volume and the claim now
// requests a size other than the volume's. The control plane tries the new size only when the node
// has stopped trying the old one.
func shrunkAfterFailure(pvc *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) bool {
	asked := pvc.Spec.Resources.Requests[v1.ResourceStorage]
	return asked.Cmp(pv.Spec.Capacity[v1.ResourceStorage]) != 0 && slices.ContainsFunc(pvc.Status.Conditions, nodeFailed)
}

func nodeFailed(c v1.PersistentVolumeClaimCondition) bool {
	return c.Type == v1.PersistentVolumeClaimNodeResizeError
}

// inUse reports whether a driver's error means that it cannot grow a volume while pods use it.
func inUse(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// resizing sets step as the state of the claim's resize in its status.
func resizing(s *v1.PersistentVolumeClaimStatus, step v1.ClaimResourceStatus) {
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[v1.ResourceStorage] = step
}

// refused records a failed resize with its error in a claim's status. If never is true it also
// records that the resize is infeasible, so that the kubelet does not retry.
func refused(s *v1.PersistentVolumeClaimStatus, err error, never bool, at time.Time) {
	if never {
		resizing(s, v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, nodeFailed)
	s.Conditions = append(s.Conditions, v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(at), Message: err.Error(),
	})
}

// claimStatus applies change to the status of a claim. It does nothing if the claim was deleted and
// another claim now has its name.
func (m *Manager) claimStatus(ctx context.Context, pvc *v1.PersistentVolumeClaim,
	change func(*v1.PersistentVolumeClaimStatus)) error {
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
