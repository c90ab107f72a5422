// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/features"
)

// tracksUse reports whether the claim has the condition Unused. The condition of a claim that is not
// bound yet is not set, because its status belongs to the controller that binds it.
func (c *claims) tracksUse(claim *v1.PersistentVolumeClaim) bool {
	return c.Options.Features.Enabled(features.PersistentVolumeClaimUnusedSinceTime) &&
		claim.DeletionTimestamp == nil && claim.Status.Phase == v1.ClaimBound
}

// unused returns the condition Unused of the claim, or nil.
func unused(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaimCondition {
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == v1.PersistentVolumeClaimUnused {
			return &claim.Status.Conditions[i]
		}
	}
	return nil
}

// useChanged reports whether the condition Unused of a claim may have to be written: it has none yet,
// was not seen before, or has another status than before. The last case includes our own write: what
// was compared with the pods before that was the claim without it.
func (c *claims) useChanged(old, claim *v1.PersistentVolumeClaim) bool {
	if !c.tracksUse(claim) {
		return false
	}
	now := unused(claim)
	if old == nil || now == nil {
		return true
	}
	before := unused(old)
	return before == nil || before.Status != now.Status
}

// references reports whether a pod that has not ended names the claim. Unlike uses, it includes pods
// that have no node yet.
func references(pod *v1.Pod, claim *v1.PersistentVolumeClaim) bool {
	return !ended(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		switch {
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName == claim.Name
		case v.Ephemeral != nil:
			return ephemeral.VolumeClaimName(pod, &v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil
		}
		return false
	})
}

// ended reports whether the pod is finished, or is being deleted and no container of it runs.
func ended(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return true
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses)
	return pod.DeletionTimestamp != nil && !slices.ContainsFunc(statuses, func(s v1.ContainerStatus) bool {
		return s.State.Terminated == nil && s.State.Waiting == nil
	})
}

// syncUnused sets the condition Unused of a bound claim, and returns the claim as it is then. It
// looks at the caches of claims and pods only: if one is out of date, the event that it lacks queues
// the claim again.
func (c *claims) syncUnused(ctx context.Context,
	claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	if !c.tracksUse(claim) {
		return claim, nil
	}
	pods, err := controller.PodsOfClaim(c.pods, controller.Key(claim))
	if err != nil {
		return nil, err
	}
	condition := v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimUnused, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: c.Clock.Now()},
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if slices.ContainsFunc(pods, func(p *v1.Pod) bool { return references(p, claim) }) {
		condition.Status, condition.Reason = v1.ConditionFalse, "PodUsingPVC"
		condition.Message = "A pod is currently referencing this PVC"
	}
	next := claim.DeepCopy()
	switch present := unused(next); {
	case present == nil:
		next.Status.Conditions = append(next.Status.Conditions, condition)
	case (present.Status == v1.ConditionTrue) == (condition.Status == v1.ConditionTrue):
		return claim, nil
	default:
		*present = condition
	}
	next, err = c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return claim, nil
	}
	if err != nil {
		return nil, fmt.Errorf("condition Unused: %w", err)
	}
	return next, nil
}
