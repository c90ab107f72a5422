// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroupprotection removes a finalizer from PodGroups that are being deleted, when no pod
// of the group is left that has not ended. The API server adds the finalizer to each new PodGroup
// (admission plugin PodGroupProtection).
package podgroupprotection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "podgroup-protection-controller"

const (
	finalizer = schedulingv1beta1.GroupName + "/podgroup-protection"
	// byGroup is the name of the index of pods that have not ended by the keys of their groups.
	byGroup = "podgroup"
	// recheck is the time after which a PodGroup is synced again if it is used by a pod that the
	// informer's cache does not show.
	recheck = time.Minute
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue  *controller.Queue
	groups schedulinglisters.PodGroupLister
	pods   cache.Indexer
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	groups, pods := d.Informers.Scheduling().V1beta1().PodGroups(), d.Informers.Core().V1().Pods().Informer()
	c := &Controller{Deps: d, groups: groups.Lister(), pods: pods.GetIndexer()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		pods.AddIndexers(cache.Indexers{byGroup: func(o any) ([]string, error) {
			if pod, ok := o.(*v1.Pod); ok && active(pod) {
				return groupOf(pod), nil
			}
			return nil, nil
		}}),
		controller.OnChange(groups.Informer(), func(_, g *schedulingv1beta1.PodGroup) {
			if g != nil && mustSync(g) {
				c.queue.AddObject(g)
			}
		}),
		controller.OnChange(pods, func(old, pod *v1.Pod) {
			if old != nil && active(old) && (pod == nil || pod.UID != old.UID || !active(pod)) {
				for _, key := range groupOf(old) {
					c.queue.Add(key)
				}
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// mustSync reports whether a PodGroup is being deleted and has the finalizer.
func mustSync(g *schedulingv1beta1.PodGroup) bool {
	return g.DeletionTimestamp != nil && slices.Contains(g.Finalizers, finalizer)
}

// active reports whether a pod has not ended.
func active(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

// groupOf returns the key of a pod's PodGroup, if it has one.
func groupOf(pod *v1.Pod) []string {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return []string{pod.Namespace + "/" + *g.PodGroupName}
	}
	return nil
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	g, err := c.groups.PodGroups(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !mustSync(g) {
		return nil
	}
	if err != nil {
		return err
	}
	users, err := c.pods.IndexKeys(byGroup, key)
	if err != nil || len(users) > 0 {
		return err
	}
	if used, err := c.stillUsed(ctx, namespace, key); err != nil || used {
		// If the pod is deleted before the cache shows it, there is no event of the deletion.
		// Therefore check the group again later.
		c.queue.AddAfter(key, recheck)
		return err
	}
	next := g.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	_, err = c.Client.SchedulingV1beta1().PodGroups(namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer: %w", err)
	}
	return nil
}

// stillUsed asks the API server whether a pod of the group has not ended, because the cache may lag.
func (c *Controller) stillUsed(ctx context.Context, namespace, key string) (bool, error) {
	pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return true, fmt.Errorf("pods: %w", err)
	}
	return slices.ContainsFunc(pods.Items, func(p v1.Pod) bool {
		return active(&p) && slices.Contains(groupOf(&p), key)
	}), nil
}
