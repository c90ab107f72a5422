// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaim makes the claims for devices that pods ask for by
// templates, reserves claims for pods that came to their nodes without the
// scheduler's help, and takes back what pods do not need any more: reservations,
// allocations, and claims that were made for one pod.
//
// A pod gets one claim for each template. The controller remembers what it made
// until its cache shows it, and asks the API server when it cannot know whether a
// claim was made.
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

// Keys name a pod or a claim.
const (
	podKey   = "pod:"
	claimKey = "claim:"
)

// Indexes of pods, and of claims.
const (
	byClaim    = "resourceClaim"
	byTemplate = "resourceClaimTemplate"
	byPod      = "owningPod"
)

// remembered is of how many pods it is known that they are gone.
const remembered = 500

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue     *controller.Queue
	pods      corelisters.PodLister
	podCache  cache.Indexer
	claims    resourcelisters.ResourceClaimLister
	owned     cache.Indexer // the claims
	templates resourcelisters.ResourceClaimTemplateLister
	gone      *lru.Cache // UIDs of pods
	made      *creations
	metrics   *metrics
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	pods, resources := d.Informers.Core().V1().Pods(), d.Informers.Resource().V1()
	c := &Controller{
		Deps: d, pods: pods.Lister(), podCache: pods.Informer().GetIndexer(),
		claims: resources.ResourceClaims().Lister(), owned: resources.ResourceClaims().Informer().GetIndexer(),
		templates: resources.ResourceClaimTemplates().Lister(), gone: lru.New(remembered), made: newCreations(),
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
				c.podsBy(byTemplate, controller.Key(t))
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
		c.gone.Add(p.UID, struct{}{})
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
	c.podsBy(byClaim, controller.Key(controller.Latest(old, claim)))
}

// podsBy has the pods looked at that an index has under a key.
func (c *Controller) podsBy(index, key string) {
	pods, err := c.podCache.ByIndex(index, key)
	if err != nil {
		return // the index is there
	}
	for _, o := range pods {
		if pod := o.(*v1.Pod); !done(pod) {
			c.queue.Add(podKey + controller.Key(pod))
		}
	}
}

// done tells whether a pod does not need its claims any more.
func done(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// claimsOf are the names of the claims that a pod uses, as far as there are any.
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

// keys are those of objects of a namespace, each once.
func keys(namespace string, names []string) []string {
	var out []string
	for _, n := range names {
		if key := namespace + "/" + n; !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// ownerIndex has claims under the UID of the pod that they were made for.
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
		return fmt.Errorf("key %q is of no kind", key)
	}
	return c.syncClaim(ctx, object)
}
