// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaim creates ResourceClaims from the templates that pods name, reserves claims
// for pods that were bound without the scheduler, and removes reservations, allocations and created
// claims when pods do not need them any more.
//
// A pod gets one claim for each template that it names. The controller keeps in memory which claims
// it has created until its cache shows them. If it does not know whether a claim was created,
// because there was no response, it asks the API server.
package resourceclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/lru"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "resourceclaim-controller"

// Prefixes of the keys in the queue. The rest of a key is the key of a pod or of a claim.
const (
	podKey   = "pod:"
	claimKey = "claim:"
)

// Names of the indexes: of pods by the claims and by the templates that they use, and of claims by
// the pod that owns them.
const (
	byClaim    = "resourceClaim"
	byTemplate = "resourceClaimTemplate"
	byPod      = "owningPod"
)

// remembered is the number of deleted pods whose UIDs the controller keeps in memory.
const remembered = 500

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue       *controller.Queue
	pods        corelisters.PodLister
	podCache    cache.Indexer
	claims      resourcelisters.ResourceClaimLister
	owned       cache.Indexer // claims, with the index byPod
	templates   resourcelisters.ResourceClaimTemplateLister
	deletedPods *lru.Cache // UIDs of pods that were deleted recently
	made        *creations
	metrics     *metrics
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	pods, resources := d.Informers.Core().V1().Pods(), d.Informers.Resource().V1()
	c := &Controller{
		Deps: d, pods: pods.Lister(), podCache: pods.Informer().GetIndexer(),
		claims: resources.ResourceClaims().Lister(), owned: resources.ResourceClaims().Informer().GetIndexer(),
		templates: resources.ResourceClaimTemplates().Lister(), deletedPods: lru.New(remembered), made: newCreations(),
		metrics: newMetrics(d.Metrics, resources.ResourceClaims().Lister()),
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		pods.Informer().AddIndexers(cache.Indexers{byClaim: claimsIndex, byTemplate: templatesIndex}),
		resources.ResourceClaims().Informer().AddIndexers(cache.Indexers{byPod: ownerIndex}),
		controller.OnChange(pods.Informer(), c.podChanged),
		controller.OnChange(resources.ResourceClaims().Informer(), c.claimChanged),
		controller.OnChange(resources.ResourceClaimTemplates().Informer(), func(_, t *resourcev1.ResourceClaimTemplate) {
			if t != nil {
				c.queuePods(byTemplate, controller.Key(t))
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) podChanged(old, pod *v1.Pod) {
	if old != nil && pod != nil && old.UID != pod.UID {
		c.podChanged(old, nil)
		old = nil
	}
	p := controller.Latest(old, pod)
	if len(p.Spec.ResourceClaims) == 0 && p.Status.ExtendedResourceClaimStatus == nil {
		return
	}
	if pod == nil {
		c.deletedPods.Add(p.UID, struct{}{})
		c.made.forget(p)
	} else if !done(p) {
		c.queue.Add(podKey + controller.Key(p))
		return
	}
	for _, name := range claimsOf(p) {
		c.queue.Add(claimKey + p.Namespace + "/" + name)
	}
}

func (c *Controller) claimChanged(old, claim *resourcev1.ResourceClaim) {
	if claim != nil {
		c.queue.Add(claimKey + controller.Key(claim))
	}
	c.queuePods(byClaim, controller.Key(controller.Latest(old, claim)))
}

// queuePods queues the pods that an index contains for a value.
func (c *Controller) queuePods(index, key string) {
	pods, err := c.podCache.ByIndex(index, key)
	if err != nil {
		return // cannot happen: New has added the index
	}
	for _, o := range pods {
		if pod := o.(*v1.Pod); !done(pod) {
			c.queue.Add(podKey + controller.Key(pod))
		}
	}
}

// done reports whether a pod does not need its claims any more, because it has ended or will never
// run.
func done(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed ||
		pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// claimsOf returns the names of the claims that a pod uses, as far as they were created.
func claimsOf(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	return names
}

func claimsIndex(o any) ([]string, error) {
	pod, ok := o.(*v1.Pod)
	if !ok {
		return nil, nil
	}
	return keys(pod.Namespace, claimsOf(pod)), nil
}

func templatesIndex(o any) ([]string, error) {
	pod, ok := o.(*v1.Pod)
	if !ok {
		return nil, nil
	}
	var names []string
	for _, r := range pod.Spec.ResourceClaims {
		if r.ResourceClaimTemplateName != nil {
			names = append(names, *r.ResourceClaimTemplateName)
		}
	}
	return keys(pod.Namespace, names), nil
}

// keys returns the keys of objects with the given names in a namespace, without duplicates.
func keys(namespace string, names []string) []string {
	var out []string
	for _, n := range names {
		if key := namespace + "/" + n; !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// ownerIndex is the index function for byPod: it returns the UID of the pod for which a claim was
// created.
func ownerIndex(o any) ([]string, error) {
	claim, ok := o.(*resourcev1.ResourceClaim)
	if !ok {
		return nil, nil
	}
	if ref := podOf(claim); ref != nil {
		return []string{string(ref.UID)}, nil
	}
	return nil, nil
}

func (c *Controller) sync(ctx context.Context, key string) error {
	if object, is := strings.CutPrefix(key, podKey); is {
		return c.syncPod(ctx, object)
	}
	object, is := strings.CutPrefix(key, claimKey)
	if !is {
		return fmt.Errorf("key %q has no known prefix", key)
	}
	return c.syncClaim(ctx, object)
}
