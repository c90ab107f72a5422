// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

func warnJob(_ context.Context, j, old *batchv1.Job) []string {
	path := field.NewPath("spec")
	switch {
	case old == nil:
		return append(podspec.WarnOfName(j.Name, "Pod names and hostnames"), warnJobSpec(&j.Spec, path)...)
	case j.Generation != old.Generation:
		return warnJobSpec(&j.Spec, path)
	}
	return nil
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
		warnings = append(warnings, fmt.Sprintf("cannot use TZ or CRON_TZ in %s, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", field.NewPath("spec", "schedule")))
	}
	return warnings
}

func warnJobSpec(spec *batchv1.JobSpec, path *field.Path) []string {
	var warnings []string
	indexed := spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
	if indexed && spec.Completions != nil && *spec.Completions > manyCompletions && spec.Parallelism != nil && *spec.Parallelism > mostWhenMany {
		warnings = append(warnings, path.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, podspec.WarnOfTemplate("", path.Child("template"), &spec.Template)...)
}
