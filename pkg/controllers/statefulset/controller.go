// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefulset manages the pods of StatefulSets. Each pod has a fixed name, ordinal and
// volumes, and a pod that replaces it gets the same name, ordinal and volumes. Unless the set says
// otherwise, pods are created and deleted in order.
//
// The function decide makes a plan from the StatefulSet, its pods and their claims. The function
// claimOwners decides which object owns a claim. Neither does I/O. The controller carries out the
// plan step by step and writes the status. There can never be two pods with the same name, so a pod
// is created again only after the API server has deleted the earlier pod of this name.
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

// catchUp is the time after which a StatefulSet is synced again if the caches do not show the
// controller's own writes yet.
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

	// The listers and caches of objects.

	sets       appslisters.StatefulSetLister
	claimsOf   corelisters.PersistentVolumeClaimLister
	setCache   cache.SharedIndexInformer
	podCache   cache.SharedIndexInformer
	claimCache cache.SharedIndexInformer
	history    *history.Store

	// written and expected report whether the caches show the controller's own writes and
	// deletions.
	written  *written
	expected *controller.Expectations
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	sets, pods, pvcs := d.Informers.Apps().V1().StatefulSets(), d.Informers.Core().V1().Pods().Informer(),
		d.Informers.Core().V1().PersistentVolumeClaims()
	revisions := d.Informers.Apps().V1().ControllerRevisions().Informer()
	store, err := history.NewStore(d.Client, revisions)
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
		controller.OnChange(revisions, c.revisionChanged),
		controller.OnChange(pods, controller.Follower{Owner: func(pod *v1.Pod) string { return ownerOf(pod) },
			Selecting: c.selecting, Expected: c.expected, Add: c.queue.Add}.PodChanged),
		controller.OnChange(c.claimCache, c.claimChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// ownerOf returns the key of the StatefulSet that controls an object, or "" if no StatefulSet
// controls it.
func ownerOf(o metav1.Object) string {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != kind.Kind {
		return ""
	}
	return o.GetNamespace() + "/" + ref.Name
}

// revisionChanged queues the StatefulSet of a changed revision. The controller's own writes are not
// skipped: the sync after them may have numbered the revisions without them, because the cache did
// not show them.
func (c *Controller) revisionChanged(old, r *appsv1.ControllerRevision) {
	for _, o := range []*appsv1.ControllerRevision{old, r} {
		if o == nil {
			continue
		}
		if set := ownerOf(o); set != "" {
			c.queue.Add(set)
		}
	}
}

// selecting returns the keys of the StatefulSets whose selectors match a pod.
func (c *Controller) selecting(pod *v1.Pod) []string {
	sets, err := c.sets.GetPodStatefulSets(pod)
	if err != nil {
		return nil // the error means that no set selects the pod
	}
	return controller.Keys(sets)
}

// claimChanged queues the StatefulSets that a claim may belong to, if the claim was deleted or its
// owners changed. A set may wait for the deletion of a claim.
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
		return // cannot happen: List of a cache returns no error
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
		return nil // cannot happen: the API server rejects invalid selectors
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

// claimRevisions returns the StatefulSet's ControllerRevisions, with the oldest first. It adopts
// revisions that match the StatefulSet's selector.
func (c *Controller) claimRevisions(ctx context.Context, owner controller.Owner) ([]*appsv1.ControllerRevision, error) {
	candidates, err := c.history.Candidates(owner.Object)
	if err != nil {
		return nil, err
	}
	// Ignore revisions that do not match the selector, so that Claim does not release them.
	candidates = slices.DeleteFunc(candidates, func(r *appsv1.ControllerRevision) bool {
		return !owner.Selector.Matches(labels.Set(r.Labels))
	})
	return c.history.Claim(ctx, owner, candidates)
}

// claimPods returns the StatefulSet's pods, which it adopts and releases. A pod belongs to the set
// if it matches the selector and its name is the set's name with an ordinal.
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

// syncSet makes a plan for a StatefulSet, carries it out, and writes the status. r are the set's
// revisions.
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

// resource returns the resource of the objects in an informer's cache. It is a label of the metric
// for stale caches. If informer is nil, the cache does not show the deletion of a pod yet, so the
// result is pods.
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

// lookUp returns the claim with the given name, or nil if it does not exist.
func (c *Controller) lookUp(namespace, name string) *v1.PersistentVolumeClaim {
	claim, err := c.claimsOf.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil // the only error that a cache returns is NotFound
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
