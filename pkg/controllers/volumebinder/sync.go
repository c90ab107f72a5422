// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// ignoreNotFound returns a sync function that ignores NotFound errors of sync. The event of the
// deletion queues what must be synced.
func ignoreNotFound(sync func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		if err := sync(ctx, key); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
}

func (c *Controller) syncClaim(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claimLister.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return err
	}
	facts, err := c.factsOf(ctx, claim)
	if err != nil {
		return err
	}
	plan := planClaim(claim, facts)
	switch {
	case plan.bind != nil:
		if err := c.bind(ctx, plan.bind, claim); err != nil {
			return err
		}
		c.metrics.bound(claim, c.Clock.Now())
		return nil
	case plan.class != "":
		next := claim.DeepCopy()
		next.Spec.StorageClassName = &plan.class
		_, err := c.updateClaim(ctx, next)
		c.metrics.gotClass(err)
		return err
	case plan.provisioner != "":
		c.metrics.provision(claim, plan.provisioner, c.Clock.Now())
		if err := c.assignProvisioner(ctx, claim, plan.provisioner); err != nil {
			c.metrics.failed(plan.provisioner)
			c.Events.Eventf(claim, v1.EventTypeWarning, "ProvisioningFailed", "Error saving claim: %v", err)
			return err
		}
	}
	changed := plan.phase != "" && plan.phase != claim.Status.Phase
	if plan.phase != "" {
		if _, err := c.setClaimStatus(ctx, claim, plan.phase, nil); err != nil {
			return err
		}
	}
	c.recordEvent(claim, plan.event, changed)
	return nil
}

func (c *Controller) recordEvent(o runtime.Object, e event, changed bool) {
	if e.reason != "" && (changed || !e.onChange) {
		c.Events.Event(o, e.kind, e.reason, e.message)
	}
}

// factsOf collects the facts about a claim for planClaim.
func (c *Controller) factsOf(ctx context.Context, claim *v1.PersistentVolumeClaim) (claimFacts, error) {
	f := claimFacts{fixed: c.Options.NoProvisioning}
	var err error
	done := metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted)
	if claim.Spec.VolumeName != "" || done {
		f.found, err = c.volume(ctx, claim.Spec.VolumeName, done)
		return f, err
	}
	if f.delayed, err = volume.IsDelayBindingMode(claim, c.classes); err != nil {
		return f, fmt.Errorf("class: %w", err)
	}
	volumes, err := c.candidates(claim)
	if err != nil {
		return f, err
	}
	if f.found, err = best(claim, volumes, f.delayed); err != nil || f.found != nil {
		return f, err
	}
	if f.class, err = c.class(volume.GetPersistentVolumeClaimClass(claim)); err != nil {
		return f, err
	}
	all, err := c.classes.List(labels.Everything())
	if err != nil {
		return f, fmt.Errorf("classes: %w", err)
	}
	f.standard = standard(all)
	f.pods, err = c.unscheduled(claim)
	return f, err
}

// volume returns the volume with the given name, or nil if it does not exist. If matters is true
// and the cache does not show the volume, it asks the API server.
func (c *Controller) volume(ctx context.Context, name string, matters bool) (*v1.PersistentVolume, error) {
	if name == "" {
		return nil, nil
	}
	v, err := c.volumeLister.Get(name)
	if apierrors.IsNotFound(err) && matters {
		v, err = c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	return v, nil
}

func (c *Controller) class(name string) (*storagev1.StorageClass, error) {
	if name == "" {
		return nil, nil
	}
	class, err := c.classes.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("class %s: %w", name, err)
	}
	return class, nil
}

// standard returns the default StorageClass, or nil if there is none. If several classes are marked
// as default, it returns the newest of them.
func standard(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var out *storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" &&
			class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		if out == nil || cmp.Or(out.CreationTimestamp.Compare(class.CreationTimestamp.Time),
			cmp.Compare(class.Name, out.Name)) < 0 {
			out = class
		}
	}
	return out
}

// unscheduled returns the names of the pods that use a claim, have no node yet and have not ended.
func (c *Controller) unscheduled(claim *v1.PersistentVolumeClaim) ([]string, error) {
	pods, err := controller.PodsOfClaim(c.podCache, controller.Key(claim))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (c *Controller) syncVolume(ctx context.Context, name string) error {
	v, err := c.volumeLister.Get(name)
	if err != nil {
		return err
	}
	claim, err := c.claimOf(ctx, v)
	if err != nil {
		return err
	}
	plan := planVolume(v, claim)
	if plan.unbind {
		return c.unbind(ctx, v)
	}
	if plan.wake {
		c.claims.AddObject(claim)
	}
	changed := plan.phase != "" && plan.phase != v.Status.Phase
	if changed {
		if _, err := c.setPhase(ctx, v, plan.phase, plan.event.message); err != nil {
			return err
		}
	}
	c.recordEvent(v, plan.event, changed)
	if claim != nil {
		c.recordEvent(claim, plan.claimEvent, changed)
	}
	return nil
}

// claimOf returns the claim that a volume refers to, or nil if that does not exist. It asks the API
// server before it returns nil, because the volume's data may be deleted as a result.
func (c *Controller) claimOf(ctx context.Context, v *v1.PersistentVolume) (*v1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil
	}
	claim, err := c.claimLister.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	if err == nil && claim.UID == ref.UID {
		return claim, nil
	}
	claim, err = c.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("claim of volume: %w", err)
	}
	return claim, nil
}
