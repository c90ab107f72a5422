// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployment rolls out Deployments. Each pod template of a Deployment has a ReplicaSet. The
// ReplicaSet of the present template is scaled up while the others are scaled down, within the
// limits of the Deployment's strategy.
//
// The functions in sizes.go compute the new sizes of the ReplicaSets and do no I/O. The controller
// scales the ReplicaSets and writes the status.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "deployment-controller"

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue       *controller.Queue
	deployments appslisters.DeploymentLister
	setCache    cache.SharedIndexInformer
	podCache    cache.SharedIndexInformer
	namespaces  corelisters.NamespaceLister
	// expected records the ReplicaSets that were created for a Deployment and that the cache does
	// not show yet. Without it, if a Deployment's template changed again in this time, the
	// controller would see no old ReplicaSet and would create the new one with the full size at
	// once.
	expected *controller.Expectations
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	apps := d.Informers.Apps().V1()
	c := &Controller{
		Deps: d, deployments: apps.Deployments().Lister(),
		setCache: apps.ReplicaSets().Informer(), podCache: d.Informers.Core().V1().Pods().Informer(),
		namespaces: d.Informers.Core().V1().Namespaces().Lister(),
		expected:   controller.NewExpectations(d.Clock),
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByController(c.setCache),
		controller.IndexByController(c.podCache),
		controller.OnChange(apps.Deployments().Informer(), c.changed),
		controller.OnChange(c.setCache, c.setChanged),
		controller.OnChange(c.podCache, func(old, pod *v1.Pod) {
			if pod == nil || !controller.Active(pod) {
				c.podGone(old, pod)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) changed(old, d *appsv1.Deployment) {
	if old != nil && d != nil && controller.OnlyStatusChanged(old, d) {
		c.queue.AddForStatus(c.namespaces, controller.Key(d))
		return
	}
	c.queue.AddObject(controller.Latest(old, d))
}

func (c *Controller) setChanged(old, set *appsv1.ReplicaSet) {
	for _, s := range []*appsv1.ReplicaSet{old, set} {
		if s == nil {
			continue
		}
		if ref := metav1.GetControllerOfNoCopy(s); ref != nil && ref.Kind == kind.Kind {
			key := s.Namespace + "/" + ref.Name
			c.expected.Created(key, s.UID)
			c.queue.AddForStatus(c.namespaces, key)
		}
	}
	if set == nil || metav1.GetControllerOfNoCopy(set) != nil {
		return
	}
	all, err := c.deployments.Deployments(set.Namespace).List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, d := range all {
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(set.Labels)) {
			c.queue.AddObject(d)
		}
	}
}

// podGone queues the Deployment of a deleted pod if its strategy is Recreate: it may have waited
// for this deletion.
func (c *Controller) podGone(old, pod *v1.Pod) {
	ref := metav1.GetControllerOfNoCopy(controller.Latest(old, pod))
	if ref == nil || ref.Kind != "ReplicaSet" {
		return
	}
	o, found, err := c.setCache.GetIndexer().GetByKey(controller.Latest(old, pod).Namespace + "/" + ref.Name)
	if err != nil || !found {
		return
	}
	set := o.(*appsv1.ReplicaSet)
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil {
		return
	}
	d, err := c.deployments.Deployments(set.Namespace).Get(owner.Name)
	if err == nil && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		c.queue.AddObject(d)
	}
}

// work holds the data of one sync: the Deployment and its ReplicaSets.
type work struct {
	*Controller
	d *appsv1.Deployment
	// sets are the ReplicaSets that the Deployment controls, oldest first. newest is the ReplicaSet
	// of the present template, or nil if there is none, and old are the other ReplicaSets.
	sets   []*appsv1.ReplicaSet
	newest *appsv1.ReplicaSet
	old    []*appsv1.ReplicaSet
}

func (c *Controller) sync(ctx context.Context, key string) error {
	err := c.step(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil // an object was deleted, and the event of its deletion queues the Deployment again
	}
	return err
}

// step carries out the next step of a Deployment's rollout.
func (c *Controller) step(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	d, err := c.deployments.Deployments(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.expected.Forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	if !c.expected.Met(key, d.UID) {
		c.queue.AddAfter(key, controller.ExpectationTimeout)
		return nil // the event of the ReplicaSet's creation queues the Deployment earlier
	}
	d = d.DeepCopy() // the sync changes annotations and conditions of this copy
	if len(d.Spec.Selector.MatchLabels)+len(d.Spec.Selector.MatchExpressions) == 0 {
		c.Events.Event(d, v1.EventTypeWarning, "SelectingAll",
			"This deployment is selecting all pods. A non-empty selector is required.")
		return nil
	}
	w, err := c.gather(ctx, d)
	if err != nil {
		return err
	}
	switch {
	case d.DeletionTimestamp != nil:
		return w.writeStatus(ctx)
	case d.Spec.Paused:
		return errors.Join(w.checkPaused(ctx), w.scaleOnly(ctx))
	case w.wasScaled():
		return errors.Join(w.checkPaused(ctx), w.scaleOnly(ctx))
	}
	if err := w.checkPaused(ctx); err != nil {
		return err
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return w.recreate(ctx)
	}
	return w.roll(ctx)
}

// gather adopts and releases ReplicaSets by the Deployment's selector, and finds the ReplicaSet of
// the present template.
func (c *Controller) gather(ctx context.Context, d *appsv1.Deployment) (*work, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	candidates, err := controller.Candidates[*appsv1.ReplicaSet](c.setCache, d)
	if err != nil {
		return nil, err
	}
	sets, err := controller.Claim(controller.Owner{
		Object: d, Kind: kind, Selector: selector,
		GetLive: func() (metav1.Object, error) {
			return c.Client.AppsV1().Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
		},
		Patch: func(set metav1.Object, patch []byte) error {
			_, err := c.Client.AppsV1().ReplicaSets(d.Namespace).Patch(ctx, set.GetName(),
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}, candidates)
	if err != nil {
		return nil, err
	}
	w := &work{Controller: c, d: d, sets: byAge(sets)}
	w.newest = findNewest(d, w.sets)
	w.old = slices.DeleteFunc(slices.Clone(w.sets), func(s *appsv1.ReplicaSet) bool {
		return w.newest != nil &&
			s.UID == w.newest.UID
	})
	return w, nil
}

// podsOf returns the pods that a ReplicaSet controls.
func (w *work) podsOf(set *appsv1.ReplicaSet) ([]*v1.Pod, error) {
	list, err := w.podCache.GetIndexer().ByIndex(controller.ByController, string(set.UID))
	if err != nil {
		return nil, fmt.Errorf("pods of %s: %w", set.Name, err)
	}
	out := make([]*v1.Pod, 0, len(list))
	for _, o := range list {
		out = append(out, o.(*v1.Pod))
	}
	return out, nil
}

// scaleOnly adapts the sizes of the ReplicaSets to the Deployment's size, but does not continue a
// rollout. The method step calls it if the Deployment is paused or was just scaled.
func (w *work) scaleOnly(ctx context.Context) error {
	if err := w.findOrCreate(ctx, false); err != nil {
		return err
	}
	if err := w.proportional(ctx); err != nil {
		return err
	}
	if w.d.Spec.Paused {
		if err := w.cleanup(ctx); err != nil {
			return err
		}
	}
	return w.writeStatus(ctx)
}

// roll carries out the next step of a rolling update of a Deployment.
func (w *work) roll(ctx context.Context) error {
	if err := w.findOrCreate(ctx, true); err != nil {
		return err
	}
	if w.newest == nil {
		return w.writeStatus(ctx) // the namespace is terminating, and the Deployment will be deleted with it
	}
	size, err := newestSize(w.d, w.sets, w.newest)
	if err != nil {
		return err
	}
	if size != *w.newest.Spec.Replicas {
		if err := w.resize(ctx, w.newest, size); err != nil {
			return err
		}
		return w.writeStatus(ctx)
	}
	steps, err := shrink(w.d, w.sets, w.old, w.newest)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := w.resize(ctx, s.set, s.size); err != nil {
			return err
		}
	}
	if len(steps) > 0 {
		return w.writeStatus(ctx)
	}
	return w.finish(ctx)
}

// finish ends a sync in which no ReplicaSet was scaled: it deletes surplus old ReplicaSets if the
// rollout is complete, and writes the status.
func (w *work) finish(ctx context.Context) error {
	if complete(w.d, w.totals()) {
		if err := w.cleanup(ctx); err != nil {
			return err
		}
	}
	return w.writeStatus(ctx)
}

// recreate carries out the next step of a rollout with the strategy Recreate: it scales down all
// old ReplicaSets, and scales up the new one when no old pods run any more.
func (w *work) recreate(ctx context.Context) error {
	if err := w.findOrCreate(ctx, false); err != nil {
		return err
	}
	shrunk := false
	for _, s := range w.old {
		if *s.Spec.Replicas > 0 {
			if err := w.resize(ctx, s, 0); err != nil {
				return err
			}
			shrunk = true
		}
	}
	if shrunk {
		return w.writeStatus(ctx)
	}
	for _, s := range w.old {
		if s.Status.Replicas > 0 {
			// When the old ReplicaSet has no pods, the event of its status queues the Deployment
			// again.
			return w.writeStatus(ctx)
		}
		pods, err := w.podsOf(s)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(pods, func(p *v1.Pod) bool {
			return p.Status.Phase != v1.PodSucceeded &&
				p.Status.Phase != v1.PodFailed
		}) {
			return w.writeStatus(ctx) // the event of the pod's deletion queues the Deployment again
		}
	}
	if err := w.findOrCreate(ctx, true); err != nil {
		return err
	}
	if w.newest == nil {
		return w.writeStatus(ctx)
	}
	if size := *w.d.Spec.Replicas; *w.newest.Spec.Replicas != size {
		if err := w.resize(ctx, w.newest, size); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// cleanup deletes old ReplicaSets without pods, as many as exceed revisionHistoryLimit. It deletes
// those with the lowest revisions first.
func (w *work) cleanup(ctx context.Context) error {
	if w.d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	var idle []*appsv1.ReplicaSet
	for _, s := range w.old {
		if s.DeletionTimestamp == nil && s.Status.Replicas == 0 && *s.Spec.Replicas == 0 &&
			s.Generation <= s.Status.ObservedGeneration {
			idle = append(idle, s)
		}
	}
	excess := len(idle) - int(*w.d.Spec.RevisionHistoryLimit)
	slices.SortStableFunc(idle, func(a, b *appsv1.ReplicaSet) int { return int(revisionOf(a) - revisionOf(b)) })
	for i := range max(excess, 0) {
		err := w.Client.AppsV1().ReplicaSets(w.d.Namespace).Delete(ctx, idle[i].Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(idle[i].UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete old replica set: %w", err)
		}
	}
	return nil
}
