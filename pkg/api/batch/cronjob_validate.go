// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/batch/schedule"
	"keelson.dev/keelson/pkg/api/report"
)

// maxCronJobName leaves room for what is added to name a job.
const maxCronJobName = 52

func validateCronJob(ctx context.Context, c *batchv1.CronJob) field.ErrorList {
	var r report.Report
	checkCronJob(ctx, &r, &c.Spec, nil)
	if len(c.Name) > maxCronJobName {
		r.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters")
	}
	return r.Errors
}

func validateCronJobUpdate(ctx context.Context, c, old *batchv1.CronJob) field.ErrorList {
	var r report.Report
	checkCronJob(ctx, &r, &c.Spec, &old.Spec)
	return r.Errors
}

func checkCronJob(ctx context.Context, r *report.Report, spec, old *batchv1.CronJobSpec) {
	path := field.NewPath("spec")
	if spec.Schedule == "" {
		r.Required(path.Child("schedule"), "")
	} else {
		checkSchedule(r, spec, old != nil && strings.Contains(old.Schedule, "TZ"), path.Child("schedule"))
	}
	if n := spec.StartingDeadlineSeconds; n != nil {
		r.NotNegative(path.Child("startingDeadlineSeconds"), *n)
	}
	if zone := spec.TimeZone; zone != nil && (old == nil || !ptr.Equal(old.TimeZone, zone)) {
		checkTimeZone(r, zone, path.Child("timeZone"))
	}
	report.OneOfRequired(r, path.Child("concurrencyPolicy"), spec.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	checkJobTemplate(ctx, r, &spec.JobTemplate.Spec, path.Child("jobTemplate", "spec"))
	if n := spec.SuccessfulJobsHistoryLimit; n != nil {
		r.NotNegative(path.Child("successfulJobsHistoryLimit"), int64(*n))
	}
	if n := spec.FailedJobsHistoryLimit; n != nil {
		r.NotNegative(path.Child("failedJobsHistoryLimit"), int64(*n))
	}
}

func checkJobTemplate(ctx context.Context, r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	checkJob(ctx, r, spec, path)
	if spec.Selector != nil {
		r.Invalid(path.Child("selector"), spec.Selector, "`selector` will be auto-generated")
	}
	if spec.ManualSelector != nil && *spec.ManualSelector {
		r.Add(field.NotSupported(path.Child("manualSelector"), spec.ManualSelector, []string{"nil", "false"}))
	}
}

// checkSchedule accepts a zone in the schedule only where one is already.
func checkSchedule(r *report.Report, spec *batchv1.CronJobSpec, hadZone bool, path *field.Path) {
	if _, err := schedule.Parse(spec.Schedule); err != nil {
		r.Invalid(path, spec.Schedule, err.Error())
	}
	switch zone := strings.Contains(spec.Schedule, "TZ"); {
	case zone && hadZone && spec.TimeZone != nil:
		r.Invalid(path, spec.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	case zone && !hadZone:
		r.Invalid(path, spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	}
}

const zonePart = `^[A-Za-z\.\-_0-9+]{1,14}$`

func checkTimeZone(r *report.Report, zone *string, path *field.Path) {
	if *zone == "" {
		r.Invalid(path, zone, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(*zone, "/") {
		ok, err := regexp.MatchString(zonePart, part)
		if err != nil || !ok || part == "." || part == ".." || strings.HasPrefix(part, "-") {
			r.Invalid(path, zone, fmt.Sprintf("unknown time zone %s", *zone))
			return
		}
	}
	if strings.EqualFold(*zone, "Local") {
		r.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		r.Invalid(path, zone, err.Error())
	}
}
