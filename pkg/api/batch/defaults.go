// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/unset"
)

const backoffLimit = 6

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	defaultJobTemplate(spec)
	if spec.Completions == nil && spec.Parallelism == nil {
		unset.Point(&spec.Completions, 1)
	}
	unset.Point(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		unset.Point(&spec.BackoffLimit, math.MaxInt32)
	}
	unset.Point(&spec.BackoffLimit, backoffLimit)
	if len(j.Labels) == 0 && spec.Template.Labels != nil {
		j.Labels = spec.Template.Labels
	}
	unset.Point(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	unset.Point(&spec.Suspend, false)
	if spec.PodFailurePolicy != nil {
		unset.Point(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	unset.Point(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	unset.Point(&spec.ManualSelector, false)
}

func defaultCronJob(c *batchv1.CronJob) {
	defaultJobTemplate(&c.Spec.JobTemplate.Spec)
	unset.Fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	unset.Point(&c.Spec.Suspend, false)
	unset.Point(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	unset.Point(&c.Spec.FailedJobsHistoryLimit, 1)
}

// defaultJobTemplate fills what the template of a cron job gets too.
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
