// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// ExpiryName is the name of the controller that deletes finished Jobs.
const ExpiryName = "ttl-after-finished-controller"

type expiryController struct {
	controller.Deps
	queue *controller.Queue
	jobs  batchlisters.JobLister
	late  prometheus.Histogram
}

// NewExpiry returns the controller that deletes finished Jobs, with their pods, when the time in
// spec.ttlSecondsAfterFinished has passed.
func NewExpiry(d controller.Deps) (controller.Controller, error) {
	jobs := d.Informers.Batch().V1().Jobs()
	c := &expiryController{Deps: d, jobs: jobs.Lister()}
	c.late = promauto.With(d.Metrics).NewHistogram(prometheus.HistogramOpts{
		Subsystem: "ttl_after_finished_controller", Name: "job_deletion_duration_seconds",
		Help:    "[ALPHA] The time it took to delete the job since it became eligible for deletion",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
	})
	c.queue = controller.NewQueue(ExpiryName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(jobs.Informer(), func(_, job *batchv1.Job) {
		if job == nil {
			return
		}
		if _, ends := expiry(job); ends {
			c.queue.AddObject(job)
		}
	})
}

// Run implements controller.Controller.
func (c *expiryController) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// expiry returns the time at which a job must be deleted. It returns false if the job must not be
// deleted.
func expiry(job *batchv1.Job) (time.Time, bool) {
	ttl := job.Spec.TTLSecondsAfterFinished
	if ttl == nil || job.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Add(time.Duration(*ttl) * time.Second), !c.LastTransitionTime.IsZero()
		}
	}
	return time.Time{}, false
}

func (c *expiryController) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	job, err := c.jobs.Jobs(namespace).Get(name)
	if err == nil && c.expired(job) {
		// Check the job on the API server too, because its TTL may have been changed.
		job, err = c.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && c.expired(job) {
			foreground := metav1.DeletePropagationForeground
			err = c.Client.BatchV1().Jobs(namespace).Delete(ctx, name, metav1.DeleteOptions{
				PropagationPolicy: &foreground,
				Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
			})
			if at, ends := expiry(job); err == nil && ends {
				c.late.Observe(c.Clock.Since(at).Seconds())
			}
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete job: %w", err)
	}
	return nil
}

// expired reports whether a job must be deleted now. If it must be deleted later, expired queues it
// for that time.
func (c *expiryController) expired(job *batchv1.Job) bool {
	at, ends := expiry(job)
	left := at.Sub(c.Clock.Now())
	if ends && left > 0 {
		c.queue.AddAfter(controller.Key(job), left)
	}
	return ends && left <= 0
}
