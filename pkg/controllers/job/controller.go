// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "job-controller"

const (
	// batchPeriod is how long the controller collects changes of pods before it syncs their job.
	// The pods of a job tend to end together, and each sync that counts pods writes the status.
	batchPeriod = 100 * time.Millisecond
	// retryMax is the longest time until a job whose sync failed is synced again.
	retryMax = time.Minute
)

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	orphans  *controller.Queue
	syncer   *syncer
	client   client
	jobs     batchlisters.JobLister
	pods     corelisters.PodLister
	podCache cache.SharedIndexInformer
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	jobs, pods := d.Informers.Batch().V1().Jobs(), d.Informers.Core().V1().Pods()
	expected := controller.NewExpectations(d.Clock)
	c := &Controller{
		Deps: d, client: client{d.Client, controller.Pods{
			Deps: d, Cache: pods.Informer().GetIndexer(), Expected: expected,
		}},
		jobs: jobs.Lister(), pods: pods.Lister(), podCache: pods.Informer(),
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	c.orphans = controller.NewQueue(Name+"-orphans", d.Clock, d.Log, d.Options.Workers, c.syncOrphan)
	c.syncer = &syncer{
		hands: c.client, clock: d.Clock, events: d.Events,
		expected: expected, memories: newMemories(), metrics: newMetrics(d.Metrics), after: c.queue.AddAfter,
	}
	return c, errors.Join(
		controller.IndexByController(c.podCache),
		controller.OnChange(jobs.Informer(), c.jobChanged),
		controller.OnChange(c.podCache, c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- c.orphans.Run(ctx) }()
	return errors.Join(c.queue.Run(ctx), <-done)
}

func (c *Controller) jobChanged(old, job *batchv1.Job) {
	c.syncer.metrics.observeJob(old, job)
	if old != nil && (job == nil || old.UID != job.UID) {
		c.releasePods(old)
	}
	switch {
	case job == nil:
		c.queue.AddObject(old) // the sync of a deleted job drops its data in memory
	case finished(job):
		c.releasePods(job)
		c.queue.AddObject(job)
	case old == nil || old.Generation != job.Generation:
		c.queue.AddObject(job)
	default:
		c.queue.AddAfter(controller.Key(job), batchPeriod)
	}
}

// releasePods queues a job's pods that have the tracking finalizer, because the job is finished or
// deleted and counts them no longer.
func (c *Controller) releasePods(job *batchv1.Job) {
	pods, err := c.podCache.GetIndexer().ByIndex(controller.ByController, string(job.UID))
	if err != nil {
		panic(err) // only a programming error leads here: New adds the index
	}
	for _, o := range pods {
		if pod := o.(*v1.Pod); tracked(pod) {
			c.orphans.AddObject(pod)
		}
	}
}

// podChanged queues the jobs that own or select a changed pod. If the pod has the tracking
// finalizer and no unfinished job owns it, it queues the pod itself.
func (c *Controller) podChanged(old, pod *v1.Pod) {
	c.syncer.metrics.observePod(old, pod)
	controller.Follower{
		Owner: func(pod *v1.Pod) string {
			if job := c.ownerOf(pod); job != nil {
				return controller.Key(job)
			}
			return ""
		},
		Selecting: c.selecting, Expected: c.syncer.expected,
		Add: func(key string) { c.queue.AddAfter(key, batchPeriod) },
	}.PodChanged(old, pod)
	if pod != nil && tracked(pod) {
		if job := c.ownerOf(pod); job == nil || finished(job) {
			c.orphans.AddObject(pod)
		}
	}
}

// selecting returns the keys of the jobs whose selectors match a pod.
func (c *Controller) selecting(pod *v1.Pod) []string {
	jobs, err := c.jobs.GetPodJobs(pod)
	if err != nil {
		return nil // the error means that no job selects the pod
	}
	var keys []string
	for i := range jobs {
		keys = append(keys, controller.Key(&jobs[i]))
	}
	return keys
}

// ownerOf returns the job that controls a pod, or nil if no job controls it.
func (c *Controller) ownerOf(pod *v1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != kind.Kind {
		return nil
	}
	job, err := c.jobs.Jobs(pod.Namespace).Get(ref.Name)
	if err != nil || job.UID != ref.UID {
		return nil
	}
	return job
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	job, err := c.jobs.Jobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.syncer.expected.Forget(key)
		c.syncer.memories.forget(key)
		return nil
	}
	if err != nil {
		return err
	}
	if foreign(job) {
		return nil
	}
	if finished(job) {
		c.syncer.memories.forget(key)
		return nil
	}
	if mode := job.Spec.CompletionMode; mode != nil && *mode != batchv1.NonIndexedCompletion &&
		*mode != batchv1.IndexedCompletion {
		c.Events.Event(job, v1.EventTypeWarning, "UnknownCompletionMode",
			"Skipped Job sync because completion mode is unknown")
		return nil
	}
	if c.syncer.memories.stale(job) {
		return nil // the job is queued again when the cache shows the new version
	}
	complete := c.client.pods.Met(job)
	if !complete {
		c.queue.AddAfter(key, controller.ExpectationTimeout)
	}
	pods, err := c.claim(ctx, job)
	if err == nil {
		err = c.syncer.sync(ctx, job, pods, complete)
	}
	if err != nil {
		c.queue.AddAfter(key, retryMax)
	}
	return err
}

// claim returns the pods of a job. It adopts pods that match the job's selector, and adds the
// tracking finalizer to them.
func (c *Controller) claim(ctx context.Context, job *batchv1.Job) ([]*v1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	candidates, err := controller.Candidates[*v1.Pod](c.podCache, job)
	if err != nil {
		return nil, err
	}
	pods, err := controller.Claim(controller.Owner{
		Object: job, Kind: kind, Selector: selector, Finalizer: batchv1.JobTrackingFinalizer,
		GetLive: func() (metav1.Object, error) {
			return c.Client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		},
		Patch: func(pod metav1.Object, patch []byte) error {
			_, err := c.Client.CoreV1().Pods(pod.GetNamespace()).Patch(ctx, pod.GetName(),
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	}, candidates)
	if err != nil {
		return nil, err
	}
	for i, pod := range pods {
		if metav1.GetControllerOfNoCopy(pod) == nil && !tracked(pod) {
			adopted := *pod
			adopted.Finalizers = append(adopted.Finalizers[:len(pod.Finalizers):len(pod.Finalizers)],
				batchv1.JobTrackingFinalizer)
			pods[i] = &adopted
		}
	}
	return pods, nil
}

// syncOrphan removes the tracking finalizer from a pod if no job will count it.
func (c *Controller) syncOrphan(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !tracked(pod) {
		return nil
	}
	if err != nil {
		return err
	}
	if counted, err := c.willBeCounted(ctx, pod); counted || err != nil {
		return err
	}
	if err := c.client.releaseOrphan(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// willBeCounted reports whether the finalizer of a pod must stay, because the pod's job will still
// count the pod. It also returns true if the pod's owner is not a Job: this controller leaves such
// pods alone. If the cache does not have the pod's job, willBeCounted reads it from the API server,
// because a pod whose finalizer is removed too early is never counted.
func (c *Controller) willBeCounted(ctx context.Context, pod *v1.Pod) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return false, nil
	}
	if ref.Kind != kind.Kind || ref.APIVersion != kind.GroupVersion().String() {
		return true, nil
	}
	job := c.ownerOf(pod)
	if job == nil {
		fresh, err := c.Client.BatchV1().Jobs(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && fresh.UID != ref.UID {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("job: %w", err)
		}
		job = fresh
	}
	return foreign(job) || !finished(job), nil
}
