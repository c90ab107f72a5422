// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// Labels of a job's pods from before they had a prefix; both are still set.
const (
	oldJobNameLabel       = "job-name"
	oldControllerUIDLabel = "controller-uid"
)

func prepareJobCreate(_ context.Context, j *batchv1.Job) {
	labelled := len(j.Spec.Template.Labels) > 0
	if j.Spec.ManualSelector == nil || !*j.Spec.ManualSelector {
		generateSelector(j)
	}
	if labelled {
		inheritLabels(j) // generated labels alone become the job's own when all is judged
	}
	j.Status = batchv1.JobStatus{}
	j.Generation = 1
	podspec.DropDisabled(&j.Spec.Template.Spec, nil)
}

// inheritLabels gives a job without labels those of its template, as the default
// does that is set on whatever is read.
func inheritLabels(j *batchv1.Job) {
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

func prepareJobStatus(_ context.Context, j, old *batchv1.Job) {
	j.Spec = old.Spec
	inheritLabels(j)
}

// generateSelector labels the pods with the job's name and UID, and selects the
// UID. Labels that the user has set are left alone, for validation to judge.
func generateSelector(j *batchv1.Job) {
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for label, value := range map[string]string{
		oldJobNameLabel: j.Name, batchv1.JobNameLabel: j.Name,
		oldControllerUIDLabel: string(j.UID), batchv1.ControllerUidLabel: string(j.UID),
	} {
		if _, ok := t.Labels[label]; !ok {
			t.Labels[label] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

func prepareJobUpdate(_ context.Context, j, old *batchv1.Job) {
	j.Status = old.Status
	podspec.DropDisabled(&j.Spec.Template.Spec, &old.Spec.Template.Spec)
	strategy.Count(j, old, equality.Semantic.DeepEqual(j.Spec, old.Spec))
}

func prepareCronJobCreate(_ context.Context, c *batchv1.CronJob) {
	c.Status = batchv1.CronJobStatus{}
	c.Generation = 1
	podspec.DropDisabled(&c.Spec.JobTemplate.Spec.Template.Spec, nil)
}

func prepareCronJobUpdate(_ context.Context, c, old *batchv1.CronJob) {
	c.Status = old.Status
	podspec.DropDisabled(&c.Spec.JobTemplate.Spec.Template.Spec, &old.Spec.JobTemplate.Spec.Template.Spec)
	strategy.Count(c, old, equality.Semantic.DeepEqual(c.Spec, old.Spec))
}

func jobFields(j *batchv1.Job) fields.Set {
	return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
}
