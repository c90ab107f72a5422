// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// syncClaim removes the reservations in a claim's status for pods that do not need it any more. If
// no reservation is left, it removes the allocation, and deletes the claim if it was created for a
// pod.
func (c *Controller) syncClaim(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claims.ResourceClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	left, err := c.consumers(ctx, claim)
	if err != nil {
		return err
	}
	if err := c.release(ctx, claim, left); err != nil {
		return err
	}
	if len(left) > 0 {
		return nil
	}
	return c.deleteUnused(ctx, claim)
}

// consumers returns those consumers of a claim that may still use it. It always keeps consumers
// that are not pods.
func (c *Controller) consumers(ctx context.Context, claim *resourcev1.ResourceClaim) (
	[]resourcev1.ResourceClaimConsumerReference, error) {
	left := make([]resourcev1.ResourceClaimConsumerReference, 0, len(claim.Status.ReservedFor))
	for _, r := range claim.Status.ReservedFor {
		ended := false
		if r.APIGroup == "" && r.Resource == "pods" {
			var err error
			if ended, err = c.ended(ctx, claim.Namespace, r); err != nil {
				return nil, err
			}
		}
		if !ended {
			left = append(left, r)
		}
	}
	return left, nil
}

// ended reports whether the pod r does not use its claims any more. If the cache does not have the
// pod, it asks the API server, because the pod may be new.
func (c *Controller) ended(ctx context.Context, namespace string, r resourcev1.ResourceClaimConsumerReference) (
	bool, error) {
	if _, gone := c.deletedPods.Get(r.UID); gone {
		return true, nil
	}
	pod, err := c.pods.Pods(namespace).Get(r.Name)
	if err == nil && pod.UID == r.UID {
		return done(pod), nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	pod, err = c.Client.CoreV1().Pods(namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("pod: %w", err)
	}
	return pod.UID != r.UID, nil
}

// release reduces the reservations in a claim's status to those in the argument left. If there are
// none, it also removes the allocation and the finalizer that protects an allocated claim.
func (c *Controller) release(ctx context.Context, claim *resourcev1.ResourceClaim,
	left []resourcev1.ResourceClaimConsumerReference) error {
	held := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	fewer := len(left) < len(claim.Status.ReservedFor)
	unused := len(left) == 0 && held && (fewer || claim.DeletionTimestamp != nil)
	next := claim.DeepCopy()
	if fewer || unused && claim.Status.Allocation != nil {
		// Use an update, because unlike a patch it fails if the claim was changed in the meantime.
		next.Status.ReservedFor = left
		if unused {
			next.Status.Allocation = nil
		}
		var err error
		if next, err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, next,
			metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	// If the process is killed between the two writes, the claim keeps its finalizer. That does no
	// harm, because the next allocation needs the finalizer anyway.
	if unused && next.Status.Allocation == nil {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		if _, err := c.Client.ResourceV1().ResourceClaims(claim.Namespace).Update(ctx, next,
			metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("finalizer: %w", err)
		}
	}
	return nil
}

// deleteUnused deletes a claim that was created for a pod, if the pod has ended. If the pod was
// deleted, the garbage collector deletes the claim.
func (c *Controller) deleteUnused(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	ref := podOf(claim)
	if ref == nil || claim.DeletionTimestamp != nil {
		return nil
	}
	pod, err := c.pods.Pods(claim.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if pod.UID == ref.UID && !done(pod) {
		return nil
	}
	if pod.UID != ref.UID {
		if _, gone := c.deletedPods.Get(ref.UID); !gone {
			return nil // the cache may not show the pod yet; if it was deleted, the garbage collector deletes the claim
		}
	}
	err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).Delete(ctx, claim.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete unused claim: %w", err)
	}
	return nil
}

// podOf returns the owner reference to the pod for which a claim was created, or nil if the claim
// was not created for a pod.
func podOf(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(claim)
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return nil
	}
	return ref
}
