// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pvcprotection adds a finalizer to PersistentVolumeClaims. A claim that is being deleted
// keeps the finalizer while a pod with a node uses it. The pod's phase does not matter, because the
// volume may still be mounted after the pod has ended.
//
// It also sets the condition Unused of bound claims: True from the time when the last pod that
// refers to the claim has ended, and False while there is such a pod.
package pvcprotection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "persistentvolumeclaim-protection-controller"

const finalizer = "kubernetes.io/pvc-protection"

// recheck is the time after which a claim is synced again if it is used by a pod that the informer's
// cache does not show.
const recheck = time.Minute

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue  *controller.Queue
	claims corelisters.PersistentVolumeClaimLister
	pods   cache.Indexer
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	pods := core.Pods().Informer()
	c := &Controller{Deps: d, claims: core.PersistentVolumeClaims().Lister(), pods: pods.GetIndexer()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByClaim(pods),
		controller.OnChange(core.PersistentVolumeClaims().Informer(), func(old, claim *v1.PersistentVolumeClaim) {
			if claim != nil && (mustSync(claim) || c.useChanged(old, claim)) {
				c.queue.AddObject(claim)
			}
		}),
		controller.OnChange(pods, c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// mustSync reports whether the finalizer of a claim may have to be added or removed: the claim has no
// finalizer and is not being deleted, or it has the finalizer and is being deleted.
func mustSync(claim *v1.PersistentVolumeClaim) bool {
	return (claim.DeletionTimestamp != nil) == slices.Contains(claim.Finalizers, finalizer)
}

// podChanged queues the claims of a pod that starts or stops using them.
func (c *Controller) podChanged(old, pod *v1.Pod) {
	if old != nil && pod != nil && old.UID == pod.UID && !shutDown(pod) && ended(old) == ended(pod) {
		return
	}
	for _, p := range []*v1.Pod{old, pod} {
		if p != nil {
			for _, key := range controller.ClaimKeys(p) {
				c.queue.Add(key)
			}
		}
	}
}

// uses reports whether a pod uses a claim. A pod without a node does not use it: if the pod is
// bound later, the kubelet rejects the claim because that is being deleted.
func uses(pod *v1.Pod, claim *v1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		switch {
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName == claim.Name
		case v.Ephemeral != nil:
			return !shutDown(pod) && ephemeral.VolumeClaimName(pod, &v) == claim.Name &&
				ephemeral.VolumeIsForPod(pod, claim) == nil
		}
		return false
	})
}

// shutDown reports whether a pod is being deleted and only its finalizers keep the object, because
// the kubelet has unmounted its volumes or the pod was force-deleted. The claim of such a pod's
// ephemeral volume is deleted without waiting for the pod, because a finalizer of the pod may wait
// for the claim's deletion.
func shutDown(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if claim, err = c.syncUnused(ctx, claim); err != nil || !mustSync(claim) {
		return err
	}
	next := claim.DeepCopy()
	if claim.DeletionTimestamp == nil {
		next.Finalizers = append(next.Finalizers, finalizer)
	} else {
		used, err := c.used(ctx, claim)
		if err != nil || used {
			return err
		}
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	}
	_, err = c.Client.CoreV1().PersistentVolumeClaims(namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer: %w", err)
	}
	return nil
}

// used reports whether a pod uses the claim. If the cache shows no such pod, it also asks the API
// server, because data may be lost if the finalizer is removed too early.
func (c *Controller) used(ctx context.Context, claim *v1.PersistentVolumeClaim) (bool, error) {
	cached, err := controller.PodsOfClaim(c.pods, controller.Key(claim))
	if err != nil || slices.ContainsFunc(cached, func(p *v1.Pod) bool { return uses(p, claim) }) {
		return err == nil, err
	}
	live, err := c.Client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("pods: %w", err)
	}
	used := slices.ContainsFunc(live.Items, func(p v1.Pod) bool { return uses(&p, claim) })
	if used {
		// If the pod is deleted before the cache shows it, there is no event of the deletion.
		// Therefore check the claim again later.
		c.queue.AddAfter(controller.Key(claim), recheck)
	}
	return used, nil
}
