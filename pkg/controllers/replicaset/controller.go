// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset contains the controllers of ReplicaSets and of ReplicationControllers. Each
// keeps the number of pods of its objects at spec.replicas.
//
// Both are one generic Controller, which works on ReplicaSets. The type kind tells it how to read
// and write its objects: ReplicationControllers are converted to ReplicaSets and back. In comments,
// a ReplicaSet is also a converted ReplicationController. The function rank decides which pods to
// delete first, and status computes the status. Neither does I/O.
package replicaset

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
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the name of the controller of ReplicaSets.
const Name = "replicaset-controller"

// burst is the maximum number of pods that one sync creates or deletes.
const burst = 500

// showWithin is how long the status is not written after pods were created or deleted, unless the
// cache shows these changes earlier.
const showWithin = 500 * time.Millisecond

// Controller implements controller.Controller for objects of type T, which are called sets.
type Controller[T any] struct {
	controller.Deps
	kind       kind[T]
	queue      *controller.Queue
	pods       controller.Pods
	expected   *controller.Expectations
	podCache   cache.SharedIndexInformer
	namespaces corelisters.NamespaceLister
}

// New returns the controller of ReplicaSets.
func New(d controller.Deps) (controller.Controller, error) {
	return newFor(d, replicaSets(d))
}

// newFor returns the controller for sets of the given kind.
func newFor[T any](d controller.Deps, kind kind[T]) (controller.Controller, error) {
	pods := d.Informers.Core().V1().Pods().Informer()
	expected := controller.NewExpectations(d.Clock)
	c := &Controller[T]{
		Deps: d, kind: kind, expected: expected, podCache: pods,
		pods:       controller.Pods{Deps: d, Cache: pods.GetIndexer(), Expected: expected},
		namespaces: d.Informers.Core().V1().Namespaces().Lister(),
	}
	c.queue = controller.NewQueue(kind.controller, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByController(pods),
		controller.OnChange(kind.informer, c.setChanged),
		controller.OnChange(pods, c.follower().PodChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller[T]) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller[T]) follower() controller.Follower {
	return controller.Follower{Owner: c.ownerOf, Selecting: c.selecting, Expected: c.expected, Add: c.podsChanged}
}

// podsChanged queues a ReplicaSet whose pods have changed. In a terminating namespace the queue
// delays it, because there only the status may change.
func (c *Controller[T]) podsChanged(key string) { c.queue.AddForStatus(c.namespaces, key) }

func (c *Controller[T]) setChanged(old, obj *T) {
	set := c.kind.read(controller.Latest(old, obj))
	key := controller.Key(set)
	if old != nil && obj != nil && controller.OnlyStatusChanged(c.kind.read(old), set) {
		c.queue.AddForStatus(c.namespaces, key)
		return
	}
	c.queue.Add(key)
}

// selecting returns the keys of the ReplicaSets whose selectors match a pod.
func (c *Controller[T]) selecting(pod *v1.Pod) []string {
	var keys []string
	for _, set := range c.sets(pod.Namespace) {
		if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil &&
			!selector.Empty() && selector.Matches(labels.Set(pod.Labels)) {
			keys = append(keys, controller.Key(set))
		}
	}
	return keys
}

// ownerOf returns the key of the ReplicaSet that controls a pod, or "" if no ReplicaSet controls
// it.
func (c *Controller[T]) ownerOf(pod *v1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != c.kind.gvk.Kind {
		return ""
	}
	key := pod.Namespace + "/" + ref.Name
	if set := c.set(key); set == nil || set.UID != ref.UID {
		return ""
	}
	return key
}

// set returns the ReplicaSet with the given key from the cache, or nil if the cache does not have
// it.
func (c *Controller[T]) set(key string) *appsv1.ReplicaSet {
	obj, found, err := c.kind.informer.GetIndexer().GetByKey(key)
	if err != nil || !found {
		return nil
	}
	return c.kind.read(obj.(*T))
}

// sets returns all ReplicaSets in a namespace.
func (c *Controller[T]) sets(namespace string) []*appsv1.ReplicaSet {
	objs, err := c.kind.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		panic(err) // only a programming error leads here: informers of the factory have an index by namespace
	}
	out := make([]*appsv1.ReplicaSet, 0, len(objs))
	for _, obj := range objs {
		out = append(out, c.kind.read(obj.(*T)))
	}
	return out
}

func (c *Controller[T]) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	set := c.set(key)
	if set == nil {
		c.expected.Forget(key)
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil // cannot happen: the API server rejects invalid selectors
	}
	met := c.pods.Met(set)
	if !met {
		c.queue.AddAfter(key, controller.ExpectationTimeout)
	}
	candidates, err := controller.Candidates[*v1.Pod](c.podCache, set)
	if err != nil {
		return err
	}
	mine, err := controller.Claim(controller.Owner{
		Object: set, Kind: c.kind.gvk, Selector: selector,
		GetLive: func() (metav1.Object, error) { return c.kind.live(ctx, namespace, name) },
		Patch: func(pod metav1.Object, patch []byte) error {
			_, err := c.Client.CoreV1().Pods(namespace).Patch(ctx, pod.GetName(), types.StrategicMergePatchType,
				patch, metav1.PatchOptions{})
			return err
		},
	}, candidates)
	if err != nil {
		return err
	}
	active := slices.DeleteFunc(slices.Clone(mine), func(p *v1.Pod) bool { return !controller.Active(p) })
	var failure error
	if met && set.DeletionTimestamp == nil {
		var acted bool
		if acted, failure = c.scale(ctx, key, set, active); acted && failure == nil {
			// Write the status in the sync after the cache has shown the pods, or after showWithin.
			c.queue.AddAfter(key, showWithin)
			return nil
		}
	}
	if err := c.writeStatus(ctx, set, mine, active, failure); err != nil {
		return err
	}
	return failure
}

// scale creates or deletes pods so that their number becomes spec.replicas. It reports whether it
// tried to create or delete pods.
func (c *Controller[T]) scale(ctx context.Context, key string, set *appsv1.ReplicaSet, active []*v1.Pod) (bool, error) {
	diff := len(active) - int(*set.Spec.Replicas)
	switch {
	case diff < 0 && controller.NamespaceTerminating(c.namespaces, set.Namespace):
		return false, nil // the namespace accepts no new pods, and the set will be deleted with it
	case diff < 0:
		return true, c.create(ctx, key, set, min(-diff, burst))
	case diff > 0:
		return true, c.pods.DeleteAll(ctx, set, c.victims(set, active, min(diff, burst)), key)
	}
	return false, nil
}

func (c *Controller[T]) create(ctx context.Context, key string, set *appsv1.ReplicaSet, n int) error {
	_, err := c.expected.Create(key, n, func(int) (types.UID, error) {
		return c.pods.Create(ctx, set, "", controller.NewPodFromTemplate(&set.Spec.Template, set, c.kind.gvk))
	})
	return err
}

// victims returns n of the active pods to delete.
func (c *Controller[T]) victims(set *appsv1.ReplicaSet, active []*v1.Pod, n int) []*v1.Pod {
	if n >= len(active) {
		return active
	}
	return rank(active, c.neighbours(set), c.Clock.Now())[:n]
}

// neighbours returns the number of active pods on each node, counting the pods of all sets with the
// same owner as set. Of pods in the same state, those on nodes with many such pods are deleted
// first.
func (c *Controller[T]) neighbours(set *appsv1.ReplicaSet) map[string]int {
	related := []*appsv1.ReplicaSet{set}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		related = slices.DeleteFunc(c.sets(set.Namespace), func(s *appsv1.ReplicaSet) bool {
			ref := metav1.GetControllerOfNoCopy(s)
			return ref == nil || ref.UID != owner.UID
		})
	}
	counts := map[string]int{}
	for _, s := range related {
		pods, err := c.podCache.GetIndexer().ByIndex(controller.ByController, string(s.UID))
		if err != nil {
			continue // cannot happen: New has added the index
		}
		for _, o := range pods {
			if pod := o.(*v1.Pod); controller.Active(pod) {
				counts[pod.Spec.NodeName]++
			}
		}
	}
	return counts
}

func (c *Controller[T]) writeStatus(ctx context.Context, set *appsv1.ReplicaSet, mine, active []*v1.Pod,
	failure error) error {
	want, again := status(set, mine, active, failure, c.Clock.Now())
	if again > 0 {
		c.queue.AddAfter(controller.Key(set), again)
	}
	if !c.kind.countsTerminating {
		want.TerminatingReplicas = nil
	}
	if equality.Semantic.DeepEqual(set.Status, want) {
		return nil
	}
	next := *set
	next.Status = want
	if err := c.kind.writeStatus(ctx, &next); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
