// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefulset manages the pods of StatefulSets. Each pod has its own name, ordinal and
// volumes, which its replacement gets again. Unless the set says otherwise, pods are created and
// deleted in order.
//
// The pure function decide makes a plan from the set, its pods and their claims. The pure function
// claimOwners decides which object owns a claim. The controller carries out the plan step by step
// and writes the status. There are never two pods with the same name, so a pod is recreated only
// after the API server has deleted the earlier one.
package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/history"
)

// Name is the controller's name.
const Name = "statefulset-controller"

// catchUp is the time that caches get to show the controller's own writes.
const catchUp = 20 * time.Millisecond

var (
	kind    = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	podKind = v1.SchemeGroupVersion.WithKind("Pod")
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue   *controller.Queue
	metrics *metrics

	// The objects.

	sets       appslisters.StatefulSetLister
	claimsOf   corelisters.PersistentVolumeClaimLister
	setCache   cache.SharedIndexInformer
	podCache   cache.SharedIndexInformer
	claimCache cache.SharedIndexInformer
	history    *history.Store

	// The controller's own writes.

	// written and expected report whether the caches show the controller's own writes and
	// deletions.
	written  *written
	expected *controller.Expectations
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	sets, pods, pvcs := d.Informers.Apps().V1().StatefulSets(), d.Informers.Core().V1().Pods().Informer(),
		d.Informers.Core().V1().PersistentVolumeClaims()
	store, err := history.NewStore(d.Client, d.Informers.Apps().V1().ControllerRevisions().Informer())
	if err != nil {
		return nil, err
	}
	c := &Controller{
		Deps: d, sets: sets.Lister(), claimsOf: pvcs.Lister(), history: store, written: newWritten(),
		expected: controller.NewExpectations(d.Clock),
		setCache: sets.Informer(), podCache: pods, claimCache: pvcs.Informer(), metrics: newMetrics(d.Metrics),
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByController(pods),
		controller.OnChange(c.setCache, func(old, set *appsv1.StatefulSet) {
			c.queue.AddObject(controller.Latest(old, set))
		}),
		controller.OnChange(pods, controller.Follower{Owner: ownerOf, Selecting: c.selecting,
			Expected: c.expected, Add: c.queue.Add}.PodChanged),
		controller.OnChange(c.claimCache, c.claimChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// ownerOf returns the key of the set that controls a pod.
func ownerOf(pod *v1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != kind.Kind {
		return ""
	}
	return pod.Namespace + "/" + ref.Name
}

// selecting returns the keys of the sets that select a pod.
func (c *Controller) selecting(pod *v1.Pod) []string {
	sets, err := c.sets.GetPodStatefulSets(pod)
	if err != nil {
		return nil // no set selects the pod
	}
	return controller.Keys(sets)
}

// claimChanged queues the set of a claim if the claim was deleted, for which the set may wait, or
// if its owners changed.
func (c *Controller) claimChanged(old, claim *v1.PersistentVolumeClaim) {
	if claim != nil && (old == nil || equality.Semantic.DeepEqual(old.OwnerReferences, claim.OwnerReferences)) {
		return
	}
	last := controller.Latest(old, claim)
	parent, _, ok := parsePodName(last.Name)
	if !ok {
		return
	}
	sets, err := c.sets.StatefulSets(last.Namespace).List(labels.Everything())
	if err != nil {
		return // a cache never fails
	}
	for _, set := range sets {
		for i := range set.Spec.VolumeClaimTemplates {
			if parent == set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name {
				c.queue.AddObject(set)
			}
		}
	}
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	set, err := c.sets.StatefulSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.written.forget(key)
		c.expected.Forget(key)
		c.metrics.forget(namespace, name)
		return nil
	}
	if err != nil {
		return err
	}
	if late := c.written.behind(key); late != nil || !c.expected.Met(key, set.UID) {
		c.metrics.skip(c.resource(late))
		c.queue.AddAfter(key, catchUp)
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil // the API server rejects such a selector
	}
	owner := controller.Owner{Object: set, Kind: kind, Selector: selector, GetLive: func() (metav1.Object, error) {
		return c.Client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	sorted, err := c.claimRevisions(ctx, owner)
	if err != nil {
		return err
	}
	pods, err := c.claimPods(ctx, owner, set)
	if err != nil {
		return err
	}
	r, err := c.syncRevisions(ctx, set, sorted)
	if err != nil || r.update == nil {
		return err
	}
	return errors.Join(c.syncSet(ctx, set, pods, r), c.truncateHistory(ctx, set, pods, sorted, r))
}

// claimRevisions returns the set's revisions in order.
func (c *Controller) claimRevisions(ctx context.Context, owner controller.Owner) ([]*appsv1.ControllerRevision, error) {
	candidates, err := c.history.Candidates(owner.Object)
	if err != nil {
		return nil, err
	}
	// A revision that no longer matches the selector is not released, but it is ignored.
	candidates = slices.DeleteFunc(candidates, func(r *appsv1.ControllerRevision) bool {
		return !owner.Selector.Matches(labels.Set(r.Labels))
	})
	return c.history.Claim(ctx, owner, candidates)
}

// claimPods returns the set's pods: those that match the selector and have a name of the set's
// form.
func (c *Controller) claimPods(ctx context.Context, owner controller.Owner, set *appsv1.StatefulSet) ([]*v1.Pod,
	error) {
	candidates, err := controller.Candidates[*v1.Pod](c.podCache, set)
	if err != nil {
		return nil, err
	}
	owner.Patch = func(pod metav1.Object, patch []byte) error {
		got, err := c.Client.CoreV1().Pods(set.Namespace).Patch(ctx, pod.GetName(),
			types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			c.written.record(controller.Key(set), c.podCache, got.ResourceVersion)
		}
		return err
	}
	var members, others []*v1.Pod
	for _, pod := range candidates {
		if isMember(set, pod) {
			members = append(members, pod)
		} else {
			others = append(others, pod)
		}
	}
	mine, err := controller.Claim(owner, members)
	owner.Selector = labels.Nothing()
	_, failure := controller.Claim(owner, others)
	return mine, errors.Join(err, failure)
}

// syncSet carries out the next steps for a set and writes its status.
func (c *Controller) syncSet(ctx context.Context, set *appsv1.StatefulSet, pods []*v1.Pod, r revisions) error {
	s := state{set: set, pods: pods, now: c.Clock.Now(), claim: func(name string) *v1.PersistentVolumeClaim {
		return c.lookUp(set.Namespace, name)
	}}
	var err error
	if s.current, err = template(r.current); err != nil {
		return err
	}
	if s.update, err = template(r.update); err != nil {
		return err
	}
	p, err := decide(s)
	if err != nil {
		return err
	}
	c.metrics.recordPlan(set, p)
	a := &actor{Controller: c, state: s}
	failure := a.carryOut(ctx, p)
	st, again := status(s, r.collisions, a.replaced.Load())
	if again > 0 {
		c.queue.AddAfter(controller.Key(set), again)
	}
	return errors.Join(failure, c.writeStatus(ctx, set, st))
}

// resource returns the resource that a cache shows, for the metric. If informer is nil, the cache
// does not show the deletion of a pod yet, so it returns pods.
func (c *Controller) resource(informer cache.SharedIndexInformer) schema.GroupResource {
	switch informer {
	case c.setCache:
		return appsv1.Resource("statefulsets")
	case c.claimCache:
		return v1.Resource("persistentvolumeclaims")
	}
	return v1.Resource("pods")
}

func template(r *appsv1.ControllerRevision) (revision, error) {
	t, err := history.Template(r)
	return revision{r.Name, t}, err
}

// lookUp returns a claim, or nil if it does not exist.
func (c *Controller) lookUp(namespace, name string) *v1.PersistentVolumeClaim {
	claim, err := c.claimsOf.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil // the only error of a cache is NotFound
	}
	return claim
}

func (c *Controller) writeStatus(ctx context.Context, set *appsv1.StatefulSet, st appsv1.StatefulSetStatus) error {
	if !outOfDate(&set.Status, &st) {
		return nil
	}
	next := set.DeepCopy()
	next.Status = st
	got, err := c.Client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	c.written.record(controller.Key(set), c.setCache, got.ResourceVersion)
	return nil
}
