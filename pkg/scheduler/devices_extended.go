// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
)

// isSpecial reports whether the scheduler created a claim for the extended resources that a pod
// requests.
func isSpecial(c *resourcev1.ResourceClaim) bool {
	return c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}

// ClassFor implements scheduling.DeviceView. If several classes name the extended resource, it
// returns the most recently created class, or the first by name among classes of the same age.
func (d *devices) ClassFor(resource v1.ResourceName) *resourcev1.DeviceClass {
	if name, implicit := strings.CutPrefix(string(resource), resourcev1.ResourceDeviceClassPrefix); implicit {
		return d.Class(name)
	}
	var best *resourcev1.DeviceClass
	for _, c := range d.Classes() {
		if n := c.Spec.ExtendedResourceName; n == nil || *n != string(resource) {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&c.CreationTimestamp) ||
			best.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	return best
}

// MadeFor implements scheduling.DeviceView.
func (d *devices) MadeFor(pod *v1.Pod) *resourcev1.ResourceClaim {
	for _, c := range listed(d.claims.ResourceClaims(pod.Namespace).List(labels.Everything())) {
		if isSpecial(c) && metav1.IsControlledBy(c, pod) {
			return c
		}
	}
	return nil
}

// unseen returns the resource claims for extended resources that have devices allocated but are not
// in the informer's cache yet.
func (d *devices) unseen() []*resourcev1.ResourceClaim {
	var out []*resourcev1.ResourceClaim
	for uid, w := range d.chosen {
		if !isSpecial(w.ResourceClaim) {
			continue
		}
		if c := found(d.claims.ResourceClaims(w.Namespace).Get(w.Name)); c == nil || c.UID != uid {
			out = append(out, w.ResourceClaim)
		}
	}
	return out
}

// made records that the claim for extended resources, which u planned, was created. The argument as
// is the created claim. The devices of u stay reserved for it.
func (d *devices) made(u *dynamicresources.Use, as *resourcev1.ResourceClaim) {
	delete(d.chosen, u.Claim.UID)
	u.Claim = as
	d.reserve(dynamicresources.Plan{*u})
}

// makeClaim creates the planned claim for extended resources. It does nothing if u is an ordinary
// claim.
func (s *Scheduler) makeClaim(ctx context.Context, pod *v1.Pod, u *dynamicresources.Use) error {
	if u.Extended == nil {
		return nil
	}
	want := u.Claim.DeepCopy()
	want.Name, want.UID = "", ""
	got, err := s.cfg.Client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, want, metav1.CreateOptions{})
	s.metrics.devices.created(err)
	if err != nil {
		return fmt.Errorf("create claim for extended resources: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.devices.made(u, got)
	return nil
}

// writeExtendedStatus writes into the pod's status which requests of the claim for extended
// resources belong to which container.
func (s *Scheduler) writeExtendedStatus(ctx context.Context, pod *v1.Pod, u dynamicresources.Use) error {
	if u.Extended == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"extendedResourceClaimStatus": v1.PodExtendedResourceClaimStatus{
			RequestMappings: u.Extended, ResourceClaimName: u.Claim.Name,
		}},
	})
	if err != nil {
		return fmt.Errorf("patch of extendedResourceClaimStatus: %w", err)
	}
	_, err = s.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// deleteClaim deletes a claim for extended resources, unless the claim was only planned and never
// created.
func (s *Scheduler) deleteClaim(ctx context.Context, c *resourcev1.ResourceClaim) {
	if c.Name == dynamicresources.Unmade {
		return
	}
	api := s.cfg.Client.ResourceV1().ResourceClaims(c.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := api.Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil || now.UID != c.UID {
			return err
		}
		at := slices.Index(now.Finalizers, resourcev1.Finalizer)
		if at < 0 {
			return nil
		}
		now.Finalizers = slices.Delete(now.Finalizers, at, at+1)
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err == nil {
		err = api.Delete(ctx, c.Name, *metav1.NewPreconditionDeleteOptions(string(c.UID)))
	}
	if !apierrors.IsNotFound(err) {
		s.claimWritten(ctx, c, err)
	}
}
