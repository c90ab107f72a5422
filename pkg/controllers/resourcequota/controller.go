// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota keeps status.used of ResourceQuotas correct. When an object is created or
// grows, admission in the API server adds its usage to status.used before the object is stored;
// this is called a charge. This controller counts the objects when a quota is created or its limits
// change, subtracts deleted objects, and periodically counts everything again.
//
// The controller never subtracts a charge for an object that is still being written: see the type
// tally and docs/decisions/0014-quota-counting.md.
//
// Package quota computes the usage of an object. Pods, services and claims come from the shared
// informers. Of objects of other resources only the number matters; the controller watches their
// metadata while a quota limits them.
package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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
	// unknownAgain is the delay until a quota is synced again if it limits a resource that is not
	// served or whose objects are not listed yet.
	unknownAgain = 10 * time.Second
	// attempts is how often a write of the status is tried in one sync if it fails with a Conflict
	// error.
	attempts = 5
	// countPrefix is the prefix of names in a quota that limit the number of objects of a resource.
	countPrefix = "count/"
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	quotas   corelisters.ResourceQuotaLister
	builtin  []quotav1.Evaluator
	watched  map[schema.GroupResource]cache.InformerSynced // HasSynced of the shared informers
	monitors *monitors
	view     *view

	mu    sync.Mutex
	asked time.Time // when the mapper was last reset, so that it discovers resources again
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &Controller{Deps: d, quotas: core.ResourceQuotas().Lister(),
		watched: map[schema.GroupResource]cache.InformerSynced{}, view: newView()}
	c.monitors = newMonitors(d.Metadata, c.changed, c.view.clear)
	resources := d.Informers.Resource().V1()
	c.builtin = quota.Configuration(d.Clock, quota.DeviceSources{
		Classes: resources.DeviceClasses().Lister(),
		Pod:     func(namespace, name string) (*v1.Pod, error) { return core.Pods().Lister().Pods(namespace).Get(name) },
		Claims: func(namespace string) ([]*resourcev1.ResourceClaim, error) {
			return resources.ResourceClaims().Lister().ResourceClaims(namespace).List(labels.Everything())
		},
	}).Evaluators()
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	for resource, informer := range map[string]cache.SharedIndexInformer{
		"pods": core.Pods().Informer(), "services": core.Services().Informer(),
		"persistentvolumeclaims":         core.PersistentVolumeClaims().Informer(),
		"resourceclaims.resource.k8s.io": resources.ResourceClaims().Informer(),
	} {
		name := schema.ParseGroupResource(resource)
		registration, err := informer.AddEventHandler(handler(func(old, obj apiObject) { c.changed(name, old, obj) }))
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		c.watched[name] = registration.HasSynced
	}
	return c, controller.OnChange(core.ResourceQuotas().Informer(), func(old, q *v1.ResourceQuota) {
		if q != nil {
			excess, short := c.view.observe(q)
			if excess {
				c.queue.AddAfter(controller.Key(q), recountAfter)
			}
			if short {
				c.queue.AddPaced(controller.Key(q))
			}
		}
		if old == nil || q == nil || !sameLimits(&old.Spec, &q.Spec) {
			c.queue.AddObject(controller.Latest(old, q))
		}
	})
}

// sameLimits reports whether the specs of two quotas have the same limits and scopes.
func sameLimits(a, b *v1.ResourceQuotaSpec) bool {
	return quotav1.Equals(a.Hard, b.Hard) && equality.Semantic.DeepEqual(a.Scopes, b.Scopes) &&
		equality.Semantic.DeepEqual(a.ScopeSelector, b.ScopeSelector)
}

// changed handles an event for an object that quotas may count. old is nil if the object was added,
// obj is nil if it was deleted.
func (c *Controller) changed(resource schema.GroupResource, old, obj apiObject) {
	namespace := obj
	if obj == nil {
		namespace = old
	}
	for _, name := range c.view.changed(resource, old, obj) {
		c.queue.AddPaced(namespace.GetNamespace() + "/" + name)
	}
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	defer c.monitors.stop()
	if !cache.WaitForCacheSync(ctx.Done(), slices.Collect(maps.Values(c.watched))...) {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	controller.RunEvery(ctx, c.Clock, c.Options.Periods.Quotas, func(context.Context) { c.countAll() })
	return g.Wait()
}

// countAll queues all quotas, and ends the watches of resources that no quota limits any more.
func (c *Controller) countAll() {
	all, err := c.quotas.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	needed := map[schema.GroupResource]bool{}
	for _, q := range all {
		c.queue.AddObject(q)
		evaluators, _ := c.evaluators(q)
		for _, e := range evaluators {
			needed[e.GroupResource()] = true
		}
	}
	c.monitors.keep(needed)
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	q, err := c.quotas.ResourceQuotas(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.view.forget(namespace, name)
		return nil
	}
	if err != nil {
		return err
	}
	evaluators, unknown := c.evaluators(q)
	// If the objects of a resource cannot be listed, count the others. The status keeps the last
	// value for this resource.
	evaluators, unlisted := c.watch(ctx, evaluators)
	if unknown || unlisted != nil {
		c.queue.AddAfter(key, unknownAgain) // a fixed delay, because the back-off of the queue would grow to minutes
	}
	if ctx.Err() != nil {
		return unlisted
	}
	if !c.view.follows(q) {
		if q, err = c.newest(ctx, namespace, name); q == nil || err != nil {
			return err
		}
		c.view.follow(q)
	}
	if err := c.view.count(q, evaluators, c.Clock.Now()); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	return errors.Join(c.write(ctx, q), unlisted)
}

// newest reads a quota from the API server. It returns nil if the quota does not exist. It lists
// instead of using get, because the controller lacks the permission to get quotas.
func (c *Controller) newest(ctx context.Context, namespace, name string) (*v1.ResourceQuota, error) {
	list, err := c.Client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("read quota: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}

// write updates the status of a quota. It retries after Conflict errors, which are frequent because
// admission writes the status too.
func (c *Controller) write(ctx context.Context, q *v1.ResourceQuota) error {
	fresh := false
	for attempt := 1; ; attempt++ {
		p := c.view.next(q, c.Clock.Now())
		if c.view.audited(q) {
			c.queue.AddAfter(controller.Key(q), chargeLife)
		}
		changed := q.DeepCopy()
		changed.Status = status(q, p.used)
		if equality.Semantic.DeepEqual(q.Status, changed.Status) {
			if len(p.released) == 0 {
				return nil
			}
			if fresh {
				c.view.wrote(q, p, revisionOf(q))
				return nil
			}
			uid, err := q.UID, error(nil)
			if q, err = c.newest(ctx, q.Namespace, q.Name); q == nil || err != nil || q.UID != uid {
				return err
			}
			fresh = true
			continue
		}
		written, err := c.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			c.view.wrote(q, p, revisionOf(written))
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err) && attempt < attempts:
			uid := q.UID
			if q, err = c.newest(ctx, q.Namespace, q.Name); q == nil || err != nil {
				return err
			}
			if q.UID != uid {
				return nil // the event for the new quota queues the key
			}
			continue
		case !refused(err):
			c.view.wrote(q, p, 0)
		}
		return fmt.Errorf("status: %w", err)
	}
}

// refused reports whether an error means that the server has certainly not stored a write.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500
}

// status returns the status of a quota with the usage in counted. Resources that are not in counted
// keep their value in the present status. Resources that the quota does not limit any more are
// removed.
func status(q *v1.ResourceQuota, counted v1.ResourceList) v1.ResourceQuotaStatus {
	used := quotav1.Add(v1.ResourceList{}, q.Status.Used)
	for n, quantity := range counted {
		used[n] = quantity
	}
	hard := quotav1.Add(v1.ResourceList{}, q.Spec.Hard)
	return v1.ResourceQuotaStatus{Hard: hard, Used: quotav1.Mask(used, quotav1.ResourceNames(hard))}
}

// evaluators returns the evaluators that compute the usage of the resources that a quota limits.
// unknown reports whether some names in the quota refer to resources that are not served.
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
		if _, ignored := quota.IgnoredResources()[resource]; ignored {
			continue
		}
		if _, err := c.resolve(resource); err != nil {
			unknown = unknown || meta.IsNoMatchError(err)
			continue
		}
		out = append(out, generic.NewObjectCountEvaluator(resource, nil, ""))
	}
	return out, unknown
}

// resetMapper makes the mapper discover resources again, unless it did so less than unknownAgain
// ago. It reports whether it reset the mapper.
func (c *Controller) resetMapper() bool {
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

// resolve returns a namespaced resource with its served version.
func (c *Controller) resolve(resource schema.GroupResource) (schema.GroupVersionResource, error) {
	gvr, err := c.Mapper.ResourceFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) && c.resetMapper() {
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
		return gvr, fmt.Errorf("%s is not a namespaced resource", resource)
	}
	return gvr, nil
}

// watch makes sure that all resources of the evaluators are watched. It returns the evaluators
// whose objects are listed, and an error for the others.
func (c *Controller) watch(ctx context.Context, evaluators []quotav1.Evaluator) (listed []quotav1.Evaluator,
	err error) {
	var errs []error
	for _, e := range evaluators {
		resource := e.GroupResource()
		if c.watched[resource] != nil {
			listed = append(listed, e)
			continue
		}
		gvr, err := v1.SchemeGroupVersion.WithResource(resource.Resource), error(nil)
		if !slices.ContainsFunc(c.builtin, func(b quotav1.Evaluator) bool { return b.GroupResource() == resource }) {
			gvr, err = c.resolve(resource)
		}
		if err == nil {
			err = c.monitors.watch(ctx, gvr)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		listed = append(listed, e)
	}
	return listed, errors.Join(errs...)
}
