// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cronjob creates the jobs of each CronJob at the times of its schedule, and deletes the
// oldest finished jobs. A job's name contains its scheduled time, so that no job is created twice
// for the same time.
//
// The functions that compute scheduled times (times.go) and choose the jobs to keep (history.go) do
// no I/O.
package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "cronjob-controller"

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	cronJobs batchlisters.CronJobLister
	jobs     cache.Indexer
	skew     prometheus.Histogram
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	cronJobs, jobs := d.Informers.Batch().V1().CronJobs(), d.Informers.Batch().V1().Jobs().Informer()
	c := &Controller{Deps: d, cronJobs: cronJobs.Lister(), jobs: jobs.GetIndexer()}
	c.skew = promauto.With(d.Metrics).NewHistogram(prometheus.HistogramOpts{
		Subsystem: "cronjob_controller", Name: "job_creation_skew_duration_seconds",
		Help:    "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	})
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByController(jobs),
		controller.OnChange(cronJobs.Informer(), c.cronJobChanged),
		controller.OnChange(jobs, c.jobChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// cronJobChanged queues a changed cron job. If its schedule changed, it queues the cron job for its
// next scheduled time, because past times of the new schedule must not start jobs.
func (c *Controller) cronJobChanged(old, cron *batchv1.CronJob) {
	if cron == nil {
		return // the garbage collector deletes the jobs of a deleted cron job
	}
	if old == nil || old.Spec.Schedule == cron.Spec.Schedule && ptr.Equal(old.Spec.TimeZone, cron.Spec.TimeZone) {
		c.queue.AddObject(cron)
		return
	}
	s, err := scheduleOf(cron)
	if err != nil {
		c.Events.Eventf(cron, v1.EventTypeWarning, "UnParseableCronJobSchedule",
			"unparseable schedule for cronjob: %s", cron.Spec.Schedule)
		return
	}
	c.queue.AddAfter(controller.Key(cron), next(cron, s, c.Clock.Now()))
}

func (c *Controller) jobChanged(old, job *batchv1.Job) {
	for _, j := range []*batchv1.Job{old, job} {
		if j == nil {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(j)
		if ref == nil || ref.Kind != kind.Kind {
			continue
		}
		if cron, err := c.cronJobs.CronJobs(j.Namespace).Get(ref.Name); err == nil && cron.UID == ref.UID {
			c.queue.AddObject(cron)
		}
	}
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	was, err := c.cronJobs.CronJobs(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	jobs, err := c.jobsOf(was)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return finishedType(job) == "" && !active(was, job.UID) }) {
		// The cache may not show the status yet that this controller wrote after it created the
		// job.
		fresh, err := c.Client.BatchV1().CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || fresh.UID != was.UID {
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return err
		}
		was = fresh
	}
	cron := was.DeepCopy()
	for _, job := range surplus(cron, jobs) {
		_ = c.remove(ctx, cron, job) // remove has recorded an event; the next sync retries
	}
	c.settle(cron, jobs)
	again, failure := time.Duration(0), c.findMissing(ctx, cron, jobs)
	if failure == nil && cron.DeletionTimestamp == nil {
		again, failure = c.start(ctx, cron)
	}
	if !equality.Semantic.DeepEqual(was.Status, cron.Status) {
		if _, err := c.Client.BatchV1().CronJobs(namespace).UpdateStatus(ctx, cron, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("status: %w", err)
		}
	}
	if again > 0 {
		c.queue.AddAfter(key, again)
	}
	return failure
}

func (c *Controller) jobsOf(cron *batchv1.CronJob) ([]*batchv1.Job, error) {
	objs, err := c.jobs.ByIndex(controller.ByController, string(cron.UID))
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	jobs := make([]*batchv1.Job, 0, len(objs))
	for _, o := range objs {
		jobs = append(jobs, o.(*batchv1.Job))
	}
	return jobs, nil
}

// settle removes finished jobs from the list of active jobs in the status, and updates the time of
// the last successful job. It records an event for each job that it removes, and for each
// unfinished job that is not in the list.
func (c *Controller) settle(cron *batchv1.CronJob, jobs []*batchv1.Job) {
	for _, job := range jobs {
		end, known := finishedType(job), active(cron, job.UID)
		switch {
		case end == "" && !known:
			c.Events.Eventf(cron, v1.EventTypeWarning, "UnexpectedJob",
				"Saw a job that the controller did not create or forgot: %s", job.Name)
		case end != "" && known:
			removeActive(cron, job.UID)
			c.Events.Eventf(cron, v1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, end)
		}
		recordSuccess(cron, job)
	}
}

// findMissing removes deleted jobs from the list of active jobs in the status. It looks up jobs
// that the informer's cache does not show on the API server, because the cache may lag.
func (c *Controller) findMissing(ctx context.Context, cron *batchv1.CronJob, jobs []*batchv1.Job) error {
	for _, ref := range cron.Status.Active {
		if slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return job.UID == ref.UID }) {
			continue
		}
		job, err := c.Client.BatchV1().Jobs(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && job.UID != ref.UID { // another job may have the same name now
			c.Events.Eventf(cron, v1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
			removeActive(cron, ref.UID)
		} else if err != nil {
			return fmt.Errorf("active job: %w", err)
		}
	}
	return nil
}

// remove deletes a job and lets the garbage collector delete its pods.
func (c *Controller) remove(ctx context.Context, cron *batchv1.CronJob, job *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := c.Client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(job.UID)),
	})
	if err != nil {
		c.Events.Eventf(cron, v1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("delete job: %w", err)
	}
	removeActive(cron, job.UID)
	c.Events.Eventf(cron, v1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", job.Name)
	return nil
}
