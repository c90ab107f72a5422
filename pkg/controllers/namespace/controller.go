// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespace deletes the content of terminating namespaces: first the pods, because the
// objects that they need must exist while they run, and then all objects of every served kind. When
// a namespace is empty, the controller removes the namespace's finalizer.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "namespace-controller"

// againFirst and againMax are the first and the longest delay until a namespace that is not empty
// is synced again.
const (
	againFirst = 100 * time.Millisecond
	againMax   = 5 * time.Second
)

// atOnce is the maximum number of resources whose objects are deleted in parallel.
const atOnce = 8

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue      *controller.Queue
	namespaces corelisters.NamespaceLister

	mu    sync.Mutex
	syncs map[string]int // number of syncs, by namespace
	pods  map[string]int // number of pods in the cache, by namespace
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	namespaces := d.Informers.Core().V1().Namespaces()
	c := &Controller{Deps: d, namespaces: namespaces.Lister(), syncs: map[string]int{}, pods: map[string]int{}}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(namespaces.Informer(), func(_, ns *v1.Namespace) {
			if ns != nil && ns.DeletionTimestamp != nil {
				c.queue.Add(ns.Name)
			}
		}),
		controller.OnChange(d.Informers.Core().V1().Pods().Informer(), c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error {
		controller.RunEvery(ctx, c.Clock, c.Options.Periods.Namespaces, func(context.Context) { c.queueTerminating() })
		return nil
	})
	return g.Wait()
}

// queueTerminating queues all namespaces that are being deleted.
func (c *Controller) queueTerminating() {
	all, err := c.namespaces.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, ns := range all {
		if ns.DeletionTimestamp != nil {
			c.queue.Add(ns.Name)
		}
	}
}

// podChanged counts the pods of each namespace. When the last pod of a terminating namespace was
// deleted, it queues the namespace, because other objects are deleted only after the pods.
func (c *Controller) podChanged(old, pod *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case old == nil:
		c.pods[pod.Namespace]++
	case pod == nil && c.pods[old.Namespace] > 1:
		c.pods[old.Namespace]--
	case pod == nil:
		delete(c.pods, old.Namespace)
		if ns, err := c.namespaces.Get(old.Namespace); err == nil && ns.DeletionTimestamp != nil {
			c.queue.Add(old.Namespace)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	ns, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) || err == nil &&
		(ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, v1.FinalizerKubernetes)) {
		c.forget(name)
		return nil
	}
	if err == nil {
		// Read the namespace from the API server, because it may have been replaced by another one
		// of the same name.
		ns, err = c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp == nil {
		return nil // the namespace is queued again when the cache shows its present state
	}
	if err != nil {
		return err
	}
	left := c.deleteContent(ctx, name)
	if err := c.writeConditions(ctx, ns, left); err != nil {
		return err
	}
	if !left.nothing() {
		c.queue.AddAfter(name, c.wait(name, left))
		return nil
	}
	grace, err := c.grace(ctx, ns)
	if err != nil {
		return err
	}
	if grace > 0 {
		c.queue.AddAfter(name, grace)
		return nil
	}
	return c.finish(ctx, ns)
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.syncs, name)
}

// wait returns how long to wait before a namespace that is not empty is synced again. If only pods
// are left, the wait is long, because the deletion of the last pod queues the namespace anyway.
func (c *Controller) wait(name string, left *remains) time.Duration {
	if left.counts[podsLeft] > 0 && len(left.failures) == 0 && left.discovery == nil {
		return againMax
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := againFirst << min(c.syncs[name], 10)
	c.syncs[name]++
	return min(d, againMax)
}

// finish removes the finalizer from the namespace's spec.
func (c *Controller) finish(ctx context.Context, ns *v1.Namespace) error {
	fresh, err := c.Client.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
	if err == nil && fresh.UID == ns.UID {
		fresh.Spec.Finalizers = slices.DeleteFunc(fresh.Spec.Finalizers,
			func(f v1.FinalizerName) bool { return f == v1.FinalizerKubernetes })
		_, err = c.Client.CoreV1().Namespaces().Finalize(ctx, fresh, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize: %w", err)
	}
	return nil
}

// remains is what is left in a namespace, and the errors of deleting it. mu guards the fields below
// it.
type remains struct {
	discovery  error
	mu         sync.Mutex
	failures   []error
	counts     map[string]int // number of objects by resource
	finalizers map[string]int // number of objects by finalizer
}

func (r *remains) nothing() bool {
	return r.discovery == nil && len(r.failures) == 0 && len(r.counts) == 0
}

// podsLeft is the key of pods in counts.
const podsLeft = "pods."

// resource is a namespaced resource. collection reports whether it supports deleting a collection.
type resource struct {
	schema.GroupVersionResource
	collection bool
}

func (c *Controller) resources() ([]resource, error) {
	lists, err := c.Discovery.ServerPreferredNamespacedResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	var out []resource
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			return nil, parseErr
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") {
				out = append(out, resource{gv.WithResource(r.Name), slices.Contains(r.Verbs, "deletecollection")})
			}
		}
	}
	return out, err
}

// withoutTwins removes the core resource events if the group events.k8s.io serves the same objects,
// so that they are deleted only once.
func withoutTwins(all []resource) []resource {
	older, newer := schema.GroupResource{Resource: "events"},
		schema.GroupResource{Group: eventsv1.GroupName, Resource: "events"}
	if !slices.ContainsFunc(all, func(r resource) bool { return r.GroupResource() == newer }) {
		return all
	}
	return slices.DeleteFunc(all, func(r resource) bool { return r.GroupResource() == older })
}

// deleteContent deletes the objects in a namespace and returns what is left. It deletes other
// objects only when no pods are left.
func (c *Controller) deleteContent(ctx context.Context, namespace string) *remains {
	left := &remains{counts: map[string]int{}, finalizers: map[string]int{}}
	all, err := c.resources()
	left.discovery = err
	pods := slices.IndexFunc(all, func(r resource) bool { return r.Group == "" && r.Resource == "pods" })
	if pods >= 0 {
		c.deleteResource(ctx, namespace, all[pods], left)
		if !left.nothing() && len(left.counts) > 0 {
			return left
		}
		all = slices.Delete(all, pods, pods+1)
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, r := range withoutTwins(all) {
		g.Go(func() error { c.deleteResource(ctx, namespace, r, left); return nil })
	}
	_ = g.Wait() // ignore the error: left contains the errors
	slices.SortFunc(left.failures, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return left
}

// deleteResource deletes all objects of one resource. It records the objects that remain in the
// argument left.
func (c *Controller) deleteResource(ctx context.Context, namespace string, r resource, left *remains) {
	client := c.Metadata.Resource(r.GroupVersionResource).Namespace(namespace)
	var all metav1.ListOptions
	if r.collection {
		all.Limit = 1 // one object is enough to find out whether there are any
	}
	list, err := client.List(ctx, all)
	if err == nil && len(list.Items) > 0 {
		background := metav1.DeletePropagationBackground
		options := metav1.DeleteOptions{PropagationPolicy: &background}
		if r.collection {
			err = client.DeleteCollection(ctx, options, metav1.ListOptions{})
		} else {
			for _, o := range list.Items {
				if e := client.Delete(ctx, o.Name, options); e != nil && !apierrors.IsNotFound(e) {
					err = errors.Join(err, e)
				}
			}
		}
		if err == nil {
			list, err = client.List(ctx, metav1.ListOptions{})
		}
	}
	left.mu.Lock()
	defer left.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return // the resource is not served any more
	case err != nil:
		left.failures = append(left.failures, fmt.Errorf("%s: %w", r.GroupVersionResource.String(), err))
		return
	}
	if len(list.Items) == 0 {
		return
	}
	left.counts[r.Resource+"."+r.Group] = len(list.Items)
	for _, o := range list.Items {
		for _, f := range o.Finalizers {
			left.finalizers[f]++
		}
	}
}
