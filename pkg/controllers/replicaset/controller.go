// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset keeps as many pods of each ReplicaSet as it asks for. Which
// pods go first when there are too many is a pure order, rank.
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
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "replicaset-controller"

// burst is how many pods are made or deleted in one sync at most.
const burst = 500

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	loop     *controller.Loop
	pods     controller.Pods
	expected *controller.Expectations
	sets     appslisters.ReplicaSetLister
	podCache cache.SharedIndexInformer
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	sets, pods := d.Informers.Apps().V1().ReplicaSets(), d.Informers.Core().V1().Pods().Informer()
	c := &Controller{
		Deps: d, pods: controller.Pods{Client: d.Client, Events: d.Events}, expected: controller.NewExpectations(d.Clock),
		sets: sets.Lister(), podCache: pods,
	}
	c.loop = controller.NewLoop(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByController(pods),
		controller.OnChange(sets.Informer(), func(old, set *appsv1.ReplicaSet) {
			if set == nil || old != nil && old.UID != set.UID {
				c.expected.Forget(controller.Key(old))
			}
			c.loop.AddObject(controller.Either(old, set))
		}),
		controller.OnChange(pods, c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// podChanged has the sets looked at that a pod's change concerns.
func (c *Controller) podChanged(old, pod *v1.Pod) {
	for _, p := range []*v1.Pod{old, pod} {
		if p == nil {
			continue
		}
		set := c.ownerOf(p)
		if set == "" {
			continue
		}
		if old == nil {
			c.expected.Created(set)
		}
		if pod == nil || pod.DeletionTimestamp != nil {
			c.expected.Deleted(set, p.UID)
		}
		c.loop.Add(set)
	}
	if pod != nil && metav1.GetControllerOfNoCopy(pod) == nil && pod.DeletionTimestamp == nil && len(pod.Labels) > 0 {
		sets, err := c.sets.GetPodReplicaSets(pod)
		if err != nil {
			return // none selects it
		}
		for _, set := range sets {
			c.loop.AddObject(set)
		}
	}
}

// ownerOf is the key of the set that controls a pod.
func (c *Controller) ownerOf(pod *v1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != kind.Kind {
		return ""
	}
	set, err := c.sets.ReplicaSets(pod.Namespace).Get(ref.Name)
	if err != nil || set.UID != ref.UID {
		return ""
	}
	return controller.Key(set)
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.Split(key)
	set, err := c.sets.ReplicaSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.expected.Forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil //nolint:nilerr // the API server refuses such a selector; there is nothing to do
	}
	met := c.expected.Met(key)
	candidates, err := controller.Candidates[*v1.Pod](c.podCache, set)
	if err != nil {
		return err
	}
	mine, err := controller.Claim(controller.Owner{
		Object: set, Kind: kind, Selector: selector,
		Fresh: func() (metav1.Object, error) {
			return c.Client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Patch: func(pod metav1.Object, patch []byte) error {
			_, err := c.Client.CoreV1().Pods(namespace).Patch(ctx, pod.GetName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}, candidates)
	if err != nil {
		return err
	}
	active := slices.DeleteFunc(slices.Clone(mine), func(p *v1.Pod) bool { return !controller.Active(p) })
	var failure error
	if met && set.DeletionTimestamp == nil {
		failure = c.scale(ctx, key, set, active)
	}
	if err := c.writeStatus(ctx, set, mine, active, failure); err != nil {
		return err
	}
	return failure
}

// scale makes or deletes pods until there are as many as the set asks for.
func (c *Controller) scale(ctx context.Context, key string, set *appsv1.ReplicaSet, active []*v1.Pod) error {
	diff := len(active) - int(*set.Spec.Replicas)
	switch {
	case diff < 0:
		return c.create(ctx, key, set, min(-diff, burst))
	case diff > 0:
		return c.delete(ctx, key, set, c.victims(set, active, min(diff, burst)))
	}
	return nil
}

func (c *Controller) create(ctx context.Context, key string, set *appsv1.ReplicaSet, n int) error {
	c.expected.Creates(key, n)
	made, err := controller.Batches(n, func(int) error {
		_, err := c.pods.Create(ctx, set, controller.FromTemplate(&set.Spec.Template, set, kind))
		return err
	})
	c.expected.Creates(key, made-n)
	if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return nil // the set will go with its namespace
	}
	return err
}

func (c *Controller) delete(ctx context.Context, key string, set *appsv1.ReplicaSet, victims []*v1.Pod) error {
	for _, pod := range victims {
		c.expected.Deletes(key, pod.UID)
	}
	errs := make([]error, len(victims))
	// No one deletion tells anything of the next, so all are tried.
	_, _ = controller.Batches(len(victims), func(i int) error {
		err := c.pods.Delete(ctx, set, victims[i])
		if err != nil {
			c.expected.Deleted(key, victims[i].UID)
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs[i] = err
		}
		return nil
	})
	return errors.Join(errs...)
}

// victims are the n pods that are to go.
func (c *Controller) victims(set *appsv1.ReplicaSet, active []*v1.Pod, n int) []*v1.Pod {
	if n >= len(active) {
		return active
	}
	return rank(active, c.neighbours(set), c.Clock.Now())[:n]
}

// neighbours counts, by node, the active pods of all sets with the same controller:
// where there are many, one goes first.
func (c *Controller) neighbours(set *appsv1.ReplicaSet) map[string]int {
	related := []*appsv1.ReplicaSet{set}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		all, err := c.Informers.Apps().V1().ReplicaSets().Informer().GetIndexer().ByIndex(cache.NamespaceIndex, set.Namespace)
		if err == nil {
			related = nil
			for _, o := range all {
				s := o.(*appsv1.ReplicaSet)
				if ref := metav1.GetControllerOfNoCopy(s); ref != nil && ref.UID == owner.UID {
					related = append(related, s)
				}
			}
		}
	}
	counts := map[string]int{}
	for _, s := range related {
		pods, err := c.podCache.GetIndexer().ByIndex(controller.ByController, string(s.UID))
		if err != nil {
			continue // without the index there is no preference
		}
		for _, o := range pods {
			if pod := o.(*v1.Pod); controller.Active(pod) {
				counts[pod.Spec.NodeName]++
			}
		}
	}
	return counts
}

func (c *Controller) writeStatus(ctx context.Context, set *appsv1.ReplicaSet, mine, active []*v1.Pod, failure error) error {
	want, again := status(set, mine, active, failure, c.Clock.Now())
	if again > 0 {
		c.loop.AddAfter(controller.Key(set), again)
	}
	if equality.Semantic.DeepEqual(set.Status, want) {
		return nil
	}
	next := set.DeepCopy()
	next.Status = want
	_, err := c.Client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// status is the set's status, and when it will change by the passing of time alone.
func status(set *appsv1.ReplicaSet, mine, active []*v1.Pod, failure error, now time.Time) (appsv1.ReplicaSetStatus, time.Duration) {
	s := *set.Status.DeepCopy()
	s.ObservedGeneration = set.Generation
	s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = int32(len(active)), 0, 0, 0
	terminating := int32(0)
	for _, pod := range mine {
		if pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			terminating++
		}
	}
	s.TerminatingReplicas = &terminating
	var again time.Duration
	for _, pod := range active {
		if labeled(pod, set.Spec.Template.Labels) {
			s.FullyLabeledReplicas++
		}
		if controller.Ready(pod) {
			s.ReadyReplicas++
		}
		ok, left := controller.Available(pod, time.Duration(set.Spec.MinReadySeconds)*time.Second, now)
		if ok {
			s.AvailableReplicas++
		} else if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return failure == nil && c.Type == appsv1.ReplicaSetReplicaFailure
	})
	if failure != nil && !slices.ContainsFunc(s.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }) {
		reason := "FailedCreate"
		if len(active) > int(*set.Spec.Replicas) {
			reason = "FailedDelete"
		}
		s.Conditions = append(s.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: v1.ConditionTrue, Reason: reason, Message: cause(failure), LastTransitionTime: metav1.NewTime(now),
		})
	}
	return s, again
}

// cause is what the API server said.
func cause(err error) string {
	var st apierrors.APIStatus
	if errors.As(err, &st) {
		return st.Status().Message
	}
	return err.Error()
}

func labeled(pod *v1.Pod, want map[string]string) bool {
	for k, v := range want {
		if pod.Labels[k] != v {
			return false
		}
	}
	return true
}
