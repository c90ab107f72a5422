// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota keeps what quotas say is used true. Admission adds to it
// as objects are created; this controller counts when a quota is new or its
// limits change, when an object goes or a pod ends, and now and then in any case.
//
// What an object counts for is package quota's. Pods, services and claims are
// counted from the caches that all controllers share; of everything else it is
// the number that matters, and only the metadata of such resources is watched
// that some quota limits, for as long as one does.
package resourcequota

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
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/quota"
)

// Name is the controller's name.
const Name = "resourcequota-controller"

const (
	// unknownAgain is after how long a resource is asked for again that is not served.
	unknownAgain = 10 * time.Second
	// settle is after how long a count that changed something is repeated: what
	// was created meanwhile admission charged, and the caches may not have shown.
	settle = 2 * time.Second
	// countPrefix begins the names that limit numbers of objects.
	countPrefix = "count/"
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	loop     *controller.Loop
	quotas   corelisters.ResourceQuotaLister
	builtin  []quotav1.Evaluator
	watched  map[schema.GroupResource]cache.GenericLister // of the shared caches
	monitors *monitors

	mu    sync.Mutex
	asked time.Time // when it was found out last what is served
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &Controller{Deps: d, quotas: core.ResourceQuotas().Lister(), watched: map[schema.GroupResource]cache.GenericLister{}}
	c.monitors = newMonitors(d.Metadata, c.gone)
	resources := d.Informers.Resource().V1()
	c.builtin = quota.Configuration(c.lister, d.Clock, quota.Devices{
		Classes: resources.DeviceClasses().Lister(),
		Pod:     func(namespace, name string) (*v1.Pod, error) { return core.Pods().Lister().Pods(namespace).Get(name) },
		Claims: func(namespace string) ([]*resourcev1.ResourceClaim, error) {
			return resources.ResourceClaims().Lister().ResourceClaims(namespace).List(labels.Everything())
		},
	}).Evaluators()
	c.loop = controller.NewLoop(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	pods, services, claims := v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithResource("services"), v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	devices := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	for _, gvr := range []schema.GroupVersionResource{pods, services, claims, devices} {
		shared, err := d.Informers.ForResource(gvr)
		if err != nil {
			return nil, fmt.Errorf("cache of %s: %w", gvr.Resource, err)
		}
		c.watched[gvr.GroupResource()] = shared.Lister()
	}
	return c, errors.Join(
		controller.OnChange(core.ResourceQuotas().Informer(), func(old, q *v1.ResourceQuota) {
			if old == nil || q != nil && !quotav1.Equals(old.Spec.Hard, q.Spec.Hard) {
				c.loop.AddObject(q)
			}
			if old != nil && q == nil {
				c.gone(schema.GroupResource{Resource: "resourcequotas"}, old.Namespace)
			}
		}),
		onChange[v1.Pod](c, pods.GroupResource(), core.Pods().Informer()),
		onChange[v1.Service](c, services.GroupResource(), core.Services().Informer()),
		onChange[v1.PersistentVolumeClaim](c, claims.GroupResource(), core.PersistentVolumeClaims().Informer()),
		onChange[resourcev1.ResourceClaim](c, devices.GroupResource(), resources.ResourceClaims().Informer()),
	)
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// onChange has quotas counted anew when an object counts for something else, or goes.
func onChange[T any, P object[T]](c *Controller, resource schema.GroupResource, informer cache.SharedIndexInformer) error {
	at := slices.IndexFunc(c.builtin, func(e quotav1.Evaluator) bool { return e.GroupResource() == resource })
	return controller.OnChange(informer, func(old, obj *T) {
		namespace := P(controller.Either(old, obj)).GetNamespace()
		// Most namespaces have no quota, and most changes make no difference.
		if old == nil || len(c.quotasOf(namespace)) == 0 || obj != nil && !quota.Differs(c.builtin[at], P(old), P(obj)) {
			return
		}
		c.gone(resource, namespace)
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	defer c.monitors.stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.loop.Run(ctx) })
	controller.Every(ctx, c.Clock, c.Options.Periods.Quotas, func(context.Context) { c.countAll() })
	return g.Wait()
}

// countAll has every quota counted, and ends the watches that none needs.
func (c *Controller) countAll() {
	all, err := c.quotas.List(labels.Everything())
	if err != nil {
		return // a cache does not fail
	}
	needed := map[schema.GroupResource]bool{}
	for _, q := range all {
		c.loop.AddObject(q)
		evaluators, _ := c.evaluators(q)
		for _, e := range evaluators {
			needed[e.GroupResource()] = true
		}
	}
	c.monitors.keep(needed)
}

func (c *Controller) quotasOf(namespace string) []*v1.ResourceQuota {
	quotas, err := c.quotas.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache does not fail
	}
	return quotas
}

// gone has the quotas of a namespace counted that limit a resource.
func (c *Controller) gone(resource schema.GroupResource, namespace string) {
	for _, q := range c.quotasOf(namespace) {
		if limits(c.builtin, resource, quotav1.ResourceNames(q.Status.Hard)) {
			c.loop.AddObject(q)
		}
	}
}

// limits tells whether one of the names of a quota is about a resource.
func limits(builtin []quotav1.Evaluator, resource schema.GroupResource, names []v1.ResourceName) bool {
	for _, e := range builtin {
		if e.GroupResource() == resource {
			return len(e.MatchingResources(names)) > 0
		}
	}
	return slices.Contains(names, generic.ObjectCountQuotaResourceNameFor(resource))
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.Split(key)
	q, err := c.quotas.ResourceQuotas(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	evaluators, unknown := c.evaluators(q)
	if unknown {
		c.loop.AddAfter(key, unknownAgain)
	}
	if err := c.watch(ctx, evaluators); err != nil {
		return err
	}
	counted, failure := quotav1.CalculateUsage(namespace, q.Spec.Scopes, q.Spec.Hard, generic.NewRegistry(evaluators), q.Spec.ScopeSelector)
	next := status(q, counted)
	if equality.Semantic.DeepEqual(q.Status, next) {
		return failure
	}
	changed := q.DeepCopy()
	changed.Status = next
	if _, err := c.Client.CoreV1().ResourceQuotas(namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return errors.Join(failure, fmt.Errorf("status: %w", err))
	}
	c.loop.AddAfter(key, settle)
	return failure
}

// status is the status of a quota after a count. What could not be counted is as
// it was; what is not limited any more is not told.
func status(q *v1.ResourceQuota, counted v1.ResourceList) v1.ResourceQuotaStatus {
	used := quotav1.Add(v1.ResourceList{}, q.Status.Used)
	for n, quantity := range counted {
		used[n] = quantity
	}
	hard := quotav1.Add(v1.ResourceList{}, q.Spec.Hard)
	return v1.ResourceQuotaStatus{Hard: hard, Used: quotav1.Mask(used, quotav1.ResourceNames(hard))}
}

// evaluators are those that count what a quota limits. It also tells whether
// there are names left that count objects of no resource served.
func (c *Controller) evaluators(q *v1.ResourceQuota) (out []quotav1.Evaluator, unknown bool) {
	names := quotav1.ResourceNames(q.Spec.Hard)
	var known []v1.ResourceName
	for _, e := range c.builtin {
		if matched := e.MatchingResources(names); len(matched) > 0 {
			out, known = append(out, e), append(known, matched...)
		}
	}
	for _, n := range names {
		text, isCount := strings.CutPrefix(string(n), countPrefix)
		if !isCount || slices.Contains(known, n) {
			continue
		}
		resource := schema.ParseGroupResource(text)
		if _, ignored := quota.Ignored()[resource]; ignored {
			continue
		}
		gvr, err := c.resolve(resource)
		if err != nil {
			unknown = unknown || meta.IsNoMatchError(err)
			continue
		}
		out = append(out, generic.NewObjectCountEvaluator(resource, generic.ListResourceUsingListerFunc(c.lister, gvr), ""))
	}
	return out, unknown
}

// askAgain has it found out anew what is served, unless that was just done.
func (c *Controller) askAgain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	if now.Sub(c.asked) < unknownAgain {
		return false
	}
	c.asked = now
	c.Mapper.Reset()
	return true
}

// resolve finds the version in which a resource of namespaces is served.
func (c *Controller) resolve(resource schema.GroupResource) (schema.GroupVersionResource, error) {
	gvr, err := c.Mapper.ResourceFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) && c.askAgain() {
		gvr, err = c.Mapper.ResourceFor(resource.WithVersion(""))
	}
	if err != nil {
		return gvr, fmt.Errorf("resource %s: %w", resource, err)
	}
	kind, err := c.Mapper.KindFor(gvr)
	if err != nil {
		return gvr, fmt.Errorf("kind of %s: %w", resource, err)
	}
	mapping, err := c.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return gvr, fmt.Errorf("mapping of %s: %w", resource, err)
	}
	if gvr.GroupResource() != resource || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return gvr, fmt.Errorf("%s is no resource of namespaces", resource)
	}
	return gvr, nil
}

// watch makes sure that what the evaluators count is watched.
func (c *Controller) watch(ctx context.Context, evaluators []quotav1.Evaluator) error {
	for _, e := range evaluators {
		resource := e.GroupResource()
		if c.watched[resource] != nil {
			continue
		}
		gvr := v1.SchemeGroupVersion.WithResource(resource.Resource)
		if !slices.ContainsFunc(c.builtin, func(b quotav1.Evaluator) bool { return b.GroupResource() == resource }) {
			var err error
			if gvr, err = c.resolve(resource); err != nil {
				return err
			}
		}
		if err := c.monitors.watch(ctx, gvr); err != nil {
			return err
		}
	}
	return nil
}

// lister implements quotav1.ListerForResourceFunc.
func (c *Controller) lister(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
	if l := c.watched[gvr.GroupResource()]; l != nil {
		return l, nil
	}
	return c.monitors.lister(gvr.GroupResource())
}
