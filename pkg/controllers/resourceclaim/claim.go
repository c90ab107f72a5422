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

// syncClaim removes reservations and the allocation from a claim if pods no longer need them, and
// deletes unused claims.
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

// consumers returns the consumers of a claim that may still use it. Consumers other than pods are
// always kept.
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

// ended reports whether a pod no longer uses its claims. It reads a pod from the API server if the
// cache does not have it, because the pod may be too new for the cache.
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

// release removes reservations from a claim. With the last one it also removes the allocation and
// the finalizer that protects an allocated claim.
func (c *Controller) release(ctx context.Context, claim *resourcev1.ResourceClaim,
	left []resourcev1.ResourceClaimConsumerReference) error {
	held := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	fewer := len(left) < len(claim.Status.ReservedFor)
	unused := len(left) == 0 && held && (fewer || claim.DeletionTimestamp != nil)
	next := claim.DeepCopy()
	if fewer || unused && claim.Status.Allocation != nil {
		// Unlike a patch, an update fails if the claim has changed meanwhile.
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
	// If this process was killed between the two writes, the claim keeps its finalizer. That is
	// harmless: the next allocation needs the finalizer anyway.
	if unused && next.Status.Allocation == nil {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		if _, err := c.Client.ResourceV1().ResourceClaims(claim.Namespace).Update(ctx, next,
			metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("finalizer: %w", err)
		}
	}
	return nil
}

// deleteUnused deletes a claim that was created for a pod that has ended. If the pod was deleted,
// the garbage collector deletes the claim.
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
			return nil // the cache may not show the pod yet; the garbage collector asks the API server
		}
	}
	err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).Delete(ctx, claim.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete unused claim: %w", err)
	}
	return nil
}

// podOf returns the owner reference to the pod that a claim was created for, or nil.
func podOf(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(claim)
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return nil
	}
	return ref
}
