// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ephemeralvolume creates PersistentVolumeClaims for pods with generic ephemeral volumes,
// from the templates in the pods. The pod owns its claims, so the garbage collector deletes them
// after the pod.
package ephemeralvolume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "ephemeral-volume-controller"

// recheck is the time after which a pod is synced again when its claim was created, in case the claim
// was deleted before the cache showed it.
const recheck = time.Minute

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	pods     corelisters.PodLister
	claims   corelisters.PersistentVolumeClaimLister
	podCache cache.Indexer

	creates, failures prometheus.Counter
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	pods := core.Pods().Informer()
	c := &Controller{Deps: d, pods: core.Pods().Lister(), claims: core.PersistentVolumeClaims().Lister(),
		podCache: pods.GetIndexer()}
	counter := func(name string) prometheus.Counter {
		return promauto.With(d.Metrics).NewCounter(prometheus.CounterOpts{
			Subsystem: "ephemeral_volume_controller", Name: name,
			Help: "[ALPHA] Number of PersistentVolumeClaim creation requests",
		})
	}
	c.creates, c.failures = counter("create_total"), counter("create_failures_total")
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByClaim(pods),
		controller.OnChange(pods, c.podChanged),
		controller.OnChange(core.PersistentVolumeClaims().Informer(), func(old, claim *v1.PersistentVolumeClaim) {
			if claim == nil {
				c.claimGone(old)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// podChanged queues a new pod with generic ephemeral volumes.
func (c *Controller) podChanged(old, pod *v1.Pod) {
	if pod != nil && (old == nil || old.UID != pod.UID) && len(volumesOf(pod)) > 0 {
		c.queue.AddObject(pod)
	}
}

// claimGone queues the pods that use a deleted claim, so that the claim is created again.
func (c *Controller) claimGone(claim *v1.PersistentVolumeClaim) {
	pods, err := controller.PodsOfClaim(c.podCache, controller.Key(claim))
	if err != nil {
		return // cannot happen: New has added the index
	}
	for _, pod := range pods {
		c.queue.AddObject(pod)
	}
}

// volumesOf returns the generic ephemeral volumes of a pod.
func volumesOf(pod *v1.Pod) []*v1.Volume {
	var out []*v1.Volume
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral != nil {
			out = append(out, &pod.Spec.Volumes[i])
		}
	}
	return out
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil {
		return nil
	}
	if err != nil {
		return err
	}
	for _, v := range volumesOf(pod) {
		if err := c.ensure(ctx, pod, v); err != nil {
			c.Events.Eventf(pod, v1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)
			return fmt.Errorf("ephemeral volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// ensure creates the claim of a volume if it does not exist. It returns an error if a claim with
// this name exists that does not belong to the pod, because the pod must not use the data of other
// volumes.
func (c *Controller) ensure(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	want := claimOf(pod, v)
	have, err := c.claims.PersistentVolumeClaims(pod.Namespace).Get(want.Name)
	switch {
	case err == nil:
		return ephemeral.VolumeIsForPod(pod, have)
	case !apierrors.IsNotFound(err):
		return err
	}
	c.creates.Inc()
	_, err = c.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		c.failures.Inc()
	}
	if err != nil && !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return fmt.Errorf("create PVC %s: %w", want.Name, err)
	}
	// If the claim is deleted before the cache shows it, there is no event of the deletion. Therefore
	// check the pod again later.
	c.queue.AddAfter(controller.Key(pod), recheck)
	return nil
}

func claimOf(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v), Labels: template.Labels,
			Annotations:     template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: template.Spec,
	}
}
