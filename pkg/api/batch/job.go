// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// jobRow returns the row of the kind table for the resource jobs.
func jobRow(p podspec.Policy) *resource.Row {
	return resource.Of[batchv1.JobList](resource.Kind[*batchv1.Job]{
		Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true,
		Categories: []string{"all"},
		Gated:      gated(func(j *batchv1.Job) *batchv1.JobSpec { return &j.Spec }),

		Default:                  defaultJob,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            prepareJobCreate,
		Validate:                 podspec.Validate(p, validateJob),
		Canonicalize:             inheritLabels,
		PrepareUpdate:            prepareJobUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateJobUpdate),
		Warnings:                 warnJob,
		Fields:                   jobFields,
		FieldPaths:               []string{"status.succeeded"},
		SelectableFields:         []string{"status.successful"},
		UnknownField:             "field label %[1]q not supported for Job",
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		DefaultGarbageCollection: metav1.DeletePropagationOrphan,
		OrphanWarning: "child pods are preserved by default when jobs are deleted; set " +
			"propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "Status of the job."},
			{Name: "Completions", Type: "string", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"]},
			{Name: "Duration", Type: "string", Description: "Time required to complete the job."},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: batchv1.JobSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: jobCells,

		Subresources: []resource.Sub[*batchv1.Job]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareJobStatus, ValidateUpdate: validateJobStatus},
		},
	})
}

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

// The labels of a job's pods had no prefix in older versions. Jobs still set the labels without a
// prefix in addition to those with one.
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
		inheritLabels(j) // if the user set no labels, Canonicalize copies the generated ones
	}
	j.Status = batchv1.JobStatus{}
	j.Generation = 1
	podspec.DropInitAnnotations(&j.Spec.Template.ObjectMeta)
}

// inheritLabels copies the template's labels to a job that has no labels. The function defaultJob
// does the same when a client sends a job or the server reads one from the store.
func inheritLabels(j *batchv1.Job) {
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

// generateSelector adds labels with the job's name and UID to the template, and sets a selector
// that matches the UID. If the user has set one of these labels, its value stays, so that
// validation can reject it.
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
	podspec.DropInitAnnotations(&j.Spec.Template.ObjectMeta)
	strategy.Count(j, old, equality.Semantic.DeepEqual(j.Spec, old.Spec))
}

// gated returns the gated fields of a kind whose objects have the specification of a job.
func gated[O resource.Object](spec func(O) *batchv1.JobSpec) []resource.Gated[O] {
	return append(podspec.Gated[O](), resource.GatedField("WorkloadWithJob",
		func(obj O) **batchv1.JobSchedulingConfiguration { return &spec(obj).Scheduling }))
}

func prepareJobStatus(_ context.Context, j, old *batchv1.Job) {
	j.Spec = old.Spec
	inheritLabels(j)
}

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

func warnJobSpec(spec *batchv1.JobSpec, path *field.Path) []string {
	var warnings []string
	indexed := spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
	if indexed && spec.Completions != nil && *spec.Completions > manyCompletions && spec.Parallelism != nil &&
		*spec.Parallelism > mostWhenMany {
		warnings = append(warnings, path.String()+": In Indexed Jobs with a number of completions higher "+
			"than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track "+
			"completedIndexes when a big number of indexes fail")
	}
	return append(warnings, podspec.WarnOfTemplate("", path.Child("template"), &spec.Template)...)
}

func jobCells(j *batchv1.Job, env resource.CellEnv) []any {
	names, images := column.Containers(j.Spec.Template.Spec.Containers)
	took := ""
	if start, end := j.Status.StartTime, j.Status.CompletionTime; start != nil && end != nil {
		took = duration.HumanDuration(end.Sub(start.Time))
	} else if start != nil {
		took = env.Age(*start)
	}
	return []any{
		j.Name, jobStatus(j), completions(j), took, env.Age(j.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(j.Spec.Selector),
	}
}

func completions(j *batchv1.Job) string {
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case j.Spec.Parallelism != nil && *j.Spec.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	default:
		return fmt.Sprintf("%d/1", j.Status.Succeeded)
	}
}

func jobStatus(j *batchv1.Job) string {
	switch {
	case is(j, batchv1.JobComplete):
		return "Complete"
	case is(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(j, batchv1.JobSuspended):
		return "Suspended"
	case is(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	default:
		return "Running"
	}
}

// is reports whether the job's first condition of the given type is true.
func is(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func jobFields(j *batchv1.Job) fields.Set {
	return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
}
