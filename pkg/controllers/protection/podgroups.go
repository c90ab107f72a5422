// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// PodGroupsName is the name of the controller of PodGroups.
const PodGroupsName = "podgroup-protection-controller"

const (
	podGroupFinalizer finalizer = schedulingv1beta1.GroupName + "/podgroup-protection"
	// byGroup is the name of the index of pods that have not ended by the keys of their groups.
	byGroup = "podgroup"
)

type podGroups struct {
	controller.Deps
	queue  *controller.Queue
	lister schedulinglisters.PodGroupLister
	pods   cache.Indexer
}

// NewPodGroups returns the controller that protects PodGroups.
func NewPodGroups(d controller.Deps) (controller.Controller, error) {
	groups, pods := d.Informers.Scheduling().V1beta1().PodGroups(), d.Informers.Core().V1().Pods().Informer()
	c := &podGroups{Deps: d, lister: groups.Lister(), pods: pods.GetIndexer()}
	c.queue = controller.NewQueue(PodGroupsName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		pods.AddIndexers(cache.Indexers{byGroup: func(o any) ([]string, error) {
			if pod, ok := o.(*v1.Pod); ok && active(pod) {
				return groupOf(pod), nil
			}
			return nil, nil
		}}),
		controller.OnChange(groups.Informer(), func(_, g *schedulingv1beta1.PodGroup) {
			if g != nil && isHeld(g) {
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
func (c *podGroups) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// isHeld reports whether a PodGroup is being deleted and has the finalizer.
func isHeld(g *schedulingv1beta1.PodGroup) bool {
	return g.DeletionTimestamp != nil && podGroupFinalizer.isOn(g)
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

func (c *podGroups) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	g, err := c.lister.PodGroups(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !isHeld(g) {
		return nil
	}
	if err != nil {
		return err
	}
	if used, err := c.used(ctx, namespace, key); err != nil || used {
		return err
	}
	return change(ctx, c.Client.SchedulingV1beta1().PodGroups(namespace), podGroupFinalizer, g.DeepCopy())
}

// used reports whether a pod of the group has not ended.
func (c *podGroups) used(ctx context.Context, namespace, key string) (bool, error) {
	return inUse(c.queue, key, func() (bool, error) {
		pods, err := c.pods.IndexKeys(byGroup, key)
		return len(pods) > 0, err
	}, func() (bool, error) {
		pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("pods: %w", err)
		}
		return slices.ContainsFunc(pods.Items, func(p v1.Pod) bool {
			return active(&p) && slices.Contains(groupOf(&p), key)
		}), nil
	})
}
