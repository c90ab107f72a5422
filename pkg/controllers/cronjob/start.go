// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// start creates the job that is due now, if there is one. It returns the time until the next
// scheduled start, or 0 if there is no next start.
func (c *Controller) start(ctx context.Context, cron *batchv1.CronJob) (time.Duration, error) {
	if zone := ptr.Deref(cron.Spec.TimeZone, ""); zone != "" {
		if _, err := time.LoadLocation(zone); err != nil {
			c.Events.Eventf(cron, v1.EventTypeWarning, "UnknownTimeZone", "invalid timeZone: %q: %s", zone, err)
			return 0, nil
		}
	}
	if ptr.Deref(cron.Spec.Suspend, false) {
		return 0, nil
	}
	if strings.Contains(cron.Spec.Schedule, "TZ") {
		c.Events.Eventf(cron, v1.EventTypeWarning, "UnsupportedSchedule",
			"CRON_TZ or TZ used in schedule %q is not officially supported, "+
				"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", cron.Spec.Schedule)
	}
	schedule, err := scheduleOf(cron)
	if err != nil {
		c.Events.Eventf(cron, v1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s",
			cron.Spec.Schedule, err)
		return 0, nil
	}
	now := c.Clock.Now()
	at, tooMany, err := due(cron, schedule, now)
	if err != nil {
		c.Events.Eventf(cron, v1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : %s", cron.Spec.Schedule, err)
		return 0, nil
	}
	if tooMany && !at.IsZero() {
		c.Events.Event(cron, v1.EventTypeWarning, "TooManyMissedTimes",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if c.mayStart(cron, at, now) {
		if err := c.createJob(ctx, cron, at); err != nil {
			return 0, err
		}
	}
	return next(cron, schedule, now), nil
}

// mayStart reports whether the job that is scheduled for a time (the argument at) may be started
// now. It returns false if this time is zero.
func (c *Controller) mayStart(cron *batchv1.CronJob, at, now time.Time) bool {
	limit := cron.Spec.StartingDeadlineSeconds
	switch {
	case at.IsZero():
		return false
	case limit != nil && at.Add(time.Duration(*limit)*time.Second).Before(now):
		c.Events.Eventf(cron, v1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s",
			at.UTC().Format(time.RFC1123Z))
		return false
	case started(cron, at):
		return false
	case cron.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(cron.Status.Active) > 0:
		c.Events.Event(cron, v1.EventTypeNormal, "JobAlreadyActive",
			"Not starting job because prior execution is running and concurrency policy is Forbid")
		return false
	}
	return true
}

// started reports whether the status shows that the job that is scheduled for the given time was
// already started.
func started(cron *batchv1.CronJob, at time.Time) bool {
	return cron.Status.LastScheduleTime.Equal(&metav1.Time{Time: at}) ||
		slices.ContainsFunc(cron.Status.Active, func(r v1.ObjectReference) bool {
			return r.Name == jobName(cron, at) && r.Namespace == cron.Namespace
		})
}

// createJob creates the job that is scheduled for the given time and adds it to the status. If a job
// of this name exists that is already in the list of active jobs or does not belong to the cron job,
// it does nothing: the job of the next scheduled time has another name.
func (c *Controller) createJob(ctx context.Context, cron *batchv1.CronJob, at time.Time) error {
	if cron.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
		if err := c.replace(ctx, cron); err != nil {
			return err
		}
	}
	want, err := jobOf(cron, at)
	if err != nil {
		return err
	}
	jobs := c.Client.BatchV1().Jobs(cron.Namespace)
	job, err := jobs.Create(ctx, want, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return err
	case apierrors.IsAlreadyExists(err):
		// A job of this name exists. Either an earlier sync created it but failed to write the
		// status, or it is an unrelated job.
		if job, err = jobs.Get(ctx, want.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("job: %w", err)
		}
		if !metav1.IsControlledBy(job, cron) || active(cron, job.UID) {
			return nil
		}
	case err != nil:
		c.Events.Eventf(cron, v1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job: %w", err)
	default:
		c.skew.Observe(job.CreationTimestamp.Sub(at).Seconds())
		c.Events.Eventf(cron, v1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	}
	cron.Status.Active = append(cron.Status.Active, v1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: job.Namespace, Name: job.Name,
		UID: job.UID, ResourceVersion: job.ResourceVersion,
	})
	cron.Status.LastScheduleTime = &metav1.Time{Time: at}
	return nil
}

// replace deletes the active jobs, because the concurrency policy is Replace.
func (c *Controller) replace(ctx context.Context, cron *batchv1.CronJob) error {
	for _, ref := range slices.Clone(cron.Status.Active) {
		job, err := c.Client.BatchV1().Jobs(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			c.Events.Eventf(cron, v1.EventTypeWarning, "FailedGet", "Get job: %v", err)
			return fmt.Errorf("job to replace: %w", err)
		}
		if job.UID != ref.UID {
			removeActive(cron, ref.UID) // another job has the same name now
			continue
		}
		if err := c.remove(ctx, cron, job); err != nil {
			return err
		}
	}
	return nil
}

// jobName returns the name of the job that is scheduled for the given time. The name contains the
// minute of that time.
func jobName(cron *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", cron.Name, at.Unix()/60)
}

func jobOf(cron *batchv1.CronJob, at time.Time) (*batchv1.Job, error) {
	zone, err := time.LoadLocation(ptr.Deref(cron.Spec.TimeZone, ""))
	if err != nil {
		return nil, fmt.Errorf("time zone: %w", err)
	}
	template := cron.Spec.JobTemplate.DeepCopy()
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = at.In(zone).Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cron.Namespace, Name: jobName(cron, at), Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, kind)},
		},
		Spec: template.Spec,
	}, nil
}
