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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/batch/schedule"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// cronJobRow returns the row of the kind table for the resource cronjobs.
func cronJobRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[batchv1.CronJob, batchv1.CronJobSpec,
		batchv1.CronJobStatus](func(o *batchv1.CronJob) (*batchv1.CronJobSpec, *batchv1.CronJobStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[batchv1.CronJobList](resource.Kind[*batchv1.CronJob]{
		Group: "batch", Version: "v1", Resource: "cronjobs", Kind: "CronJob", Namespaced: true,
		ShortNames: []string{"cj"}, Categories: []string{"all"},
		Gated: gated(func(c *batchv1.CronJob) *batchv1.JobSpec { return &c.Spec.JobTemplate.Spec }),

		Default:                  defaultCronJob,
		PrepareCreate:            prepareCronJobCreate,
		Validate:                 podspec.Validate(p, validateCronJob),
		PrepareUpdate:            prepareCronJobUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateCronJobUpdate),
		Warnings:                 warnCronJob,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Schedule", Type: "string", Description: batchv1.CronJobSpec{}.SwaggerDoc()["schedule"]},
			{Name: "Timezone", Type: "string", Description: batchv1.CronJobSpec{}.SwaggerDoc()["timeZone"]},
			{Name: "Suspend", Type: "boolean", Description: batchv1.CronJobSpec{}.SwaggerDoc()["suspend"]},
			{Name: "Active", Type: "integer", Description: batchv1.CronJobStatus{}.SwaggerDoc()["active"]},
			{Name: "Last Schedule", Type: "string", Description: batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: batchv1.JobSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: cronJobCells,

		Subresources: []resource.Sub[*batchv1.CronJob]{
			{Subresource: strategy.View("status", "spec").WithMetaChecks(resource.CheckNeither), PrepareUpdate: parts.KeepSpec},
		},
	})
}

func defaultCronJob(c *batchv1.CronJob) {
	defaultJobTemplate(&c.Spec.JobTemplate.Spec)
	unset.Fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	unset.Point(&c.Spec.Suspend, false)
	unset.Point(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	unset.Point(&c.Spec.FailedJobsHistoryLimit, 1)
}

// defaultJobTemplate sets those defaults of a job's spec that the templates of cron jobs get too.
func defaultJobTemplate(spec *batchv1.JobSpec) {
	podspec.DefaultSpec(&spec.Template.Spec)
	if spec.PodFailurePolicy == nil {
		return
	}
	for i := range spec.PodFailurePolicy.Rules {
		conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
		for j := range conditions {
			unset.Fill(&conditions[j].Status, corev1.ConditionTrue)
		}
	}
}

func prepareCronJobCreate(_ context.Context, c *batchv1.CronJob) {
	c.Status = batchv1.CronJobStatus{}
	c.Generation = 1
	podspec.DropInitAnnotations(&c.Spec.JobTemplate.Spec.Template.ObjectMeta)
}

func prepareCronJobUpdate(_ context.Context, c, old *batchv1.CronJob) {
	c.Status = old.Status
	podspec.DropInitAnnotations(&c.Spec.JobTemplate.Spec.Template.ObjectMeta)
	strategy.Count(c, old, equality.Semantic.DeepEqual(c.Spec, old.Spec))
}

// maxCronJobName is the maximum length of a cron job's name. The controller adds a suffix to the
// name to name the jobs.
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
	checkCronJob(podspec.Replacing(ctx, &old.Spec.JobTemplate.Spec.Template), &r, &c.Spec, &old.Spec)
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

// checkSchedule checks a schedule. hadZone is true if the stored schedule has a time zone. Only
// then may the new schedule have one.
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

func warnCronJob(_ context.Context, c, old *batchv1.CronJob) []string {
	path := field.NewPath("spec", "jobTemplate", "spec")
	if old == nil {
		return append(podspec.WarnOfName(c.Name, "Pod names and hostnames"), warnJobSpec(&c.Spec.JobTemplate.Spec, path)...)
	}
	var warnings []string
	if c.Generation != old.Generation {
		warnings = warnJobSpec(&c.Spec.JobTemplate.Spec, path)
	}
	if strings.Contains(c.Spec.Schedule, "TZ") {
		warnings = append(warnings, fmt.Sprintf("cannot use TZ or CRON_TZ in %s, use timeZone instead, see "+
			"https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
			field.NewPath("spec", "schedule")))
	}
	return warnings
}

func cronJobCells(c *batchv1.CronJob, env resource.CellEnv) []any {
	names, images := column.Containers(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
	last := column.None
	if c.Status.LastScheduleTime != nil {
		last = env.Age(*c.Status.LastScheduleTime)
	}
	suspended := column.Unset
	if c.Spec.Suspend != nil {
		suspended = "False"
		if *c.Spec.Suspend {
			suspended = "True"
		}
	}
	return []any{
		c.Name, c.Spec.Schedule, column.Deref(c.Spec.TimeZone, column.None), suspended, int64(len(c.Status.Active)), last,
		env.Age(c.CreationTimestamp), names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}
