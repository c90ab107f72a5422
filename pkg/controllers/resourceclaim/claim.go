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

// syncClaim takes from a claim what pods do not need any more.
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

// consumers are those of a claim that may still use it. Of what is no pod nothing
// is known, and it stays.
func (c *Controller) consumers(ctx context.Context, claim *resourcev1.ResourceClaim) ([]resourcev1.ResourceClaimConsumerReference, error) {
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

// ended tells whether a pod will not use its claims any more. One that the cache
// does not have may be too new for it: then the API server is asked.
func (c *Controller) ended(ctx context.Context, namespace string, r resourcev1.ResourceClaimConsumerReference) (bool, error) {
	if _, gone := c.gone.Get(r.UID); gone {
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

// release takes reservations from a claim, its allocation with the last of them,
// and the finalizer that keeps an allocated claim.
func (c *Controller) release(ctx context.Context, claim *resourcev1.ResourceClaim, left []resourcev1.ResourceClaimConsumerReference) error {
	held := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	fewer := len(left) < len(claim.Status.ReservedFor)
	unused := len(left) == 0 && held && (fewer || claim.DeletionTimestamp != nil)
	next := claim.DeepCopy()
	if fewer || unused && claim.Status.Allocation != nil {
		// An update fails when anything has changed in the meantime; a patch would not.
		next.Status.ReservedFor = left
		if unused {
			next.Status.Allocation = nil
		}
		var err error
		if next, err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	// A claim that was released and kept its finalizer, because this process ended
	// in between, is free for the next allocation, which keeps the finalizer.
	if unused && next.Status.Allocation == nil {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		if _, err := c.Client.ResourceV1().ResourceClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("finalizer: %w", err)
		}
	}
	return nil
}

// deleteUnused deletes a claim that was made for a pod which has ended. When the
// pod is gone the garbage collector does so.
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
		if _, gone := c.gone.Get(ref.UID); !gone {
			return nil // the cache may be the one that is behind; the garbage collector asks
		}
	}
	err = c.Client.ResourceV1().ResourceClaims(claim.Namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete unused claim: %w", err)
	}
	return nil
}

// podOf is the pod that a claim was made for, or nil.
func podOf(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(claim)
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" {
		return nil
	}
	return ref
}
