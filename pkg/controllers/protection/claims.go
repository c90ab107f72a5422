// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// ClaimsName is the name of the controller of PersistentVolumeClaims.
const ClaimsName = "persistentvolumeclaim-protection-controller"

const claimFinalizer finalizer = "kubernetes.io/pvc-protection"

type claims struct {
	controller.Deps
	queue  *controller.Queue
	lister corelisters.PersistentVolumeClaimLister
	pods   cache.Indexer
}

// NewClaims returns the controller that protects PersistentVolumeClaims, and that sets their condition
// Unused.
func NewClaims(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	pods := core.Pods().Informer()
	c := &claims{Deps: d, lister: core.PersistentVolumeClaims().Lister(), pods: pods.GetIndexer()}
	c.queue = controller.NewQueue(ClaimsName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByClaim(pods),
		controller.OnChange(core.PersistentVolumeClaims().Informer(), func(old, claim *v1.PersistentVolumeClaim) {
			if claim != nil && (claimFinalizer.mayChange(claim) || c.useChanged(old, claim)) {
				c.queue.AddObject(claim)
			}
		}),
		controller.OnChange(pods, c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *claims) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// podChanged queues the claims of a pod that starts or stops using them.
func (c *claims) podChanged(old, pod *v1.Pod) {
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

func (c *claims) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	claim, err := c.lister.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if claim, err = c.syncUnused(ctx, claim); err != nil || !claimFinalizer.mayChange(claim) {
		return err
	}
	if claim.DeletionTimestamp != nil {
		if used, err := c.used(ctx, claim); err != nil || used {
			return err
		}
	}
	return change(ctx, c.Client.CoreV1().PersistentVolumeClaims(namespace), claimFinalizer, claim.DeepCopy())
}

// used reports whether a pod uses the claim.
func (c *claims) used(ctx context.Context, claim *v1.PersistentVolumeClaim) (bool, error) {
	key := controller.Key(claim)
	return inUse(c.queue, key, func() (bool, error) {
		pods, err := controller.PodsOfClaim(c.pods, key)
		return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return uses(p, claim) }), err
	}, func() (bool, error) {
		pods, err := c.Client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("pods: %w", err)
		}
		return slices.ContainsFunc(pods.Items, func(p v1.Pod) bool { return uses(&p, claim) }), nil
	})
}
