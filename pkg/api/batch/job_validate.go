// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateJob(ctx context.Context, j *batchv1.Job) field.ErrorList {
	var r report.Report
	checkGenerated(&r, j)
	r.Add(checkWholeJob(ctx, j)...)
	return r.Errors
}

// checkWholeJob validates the parts of a job that are validated on create and on update.
func checkWholeJob(ctx context.Context, j *batchv1.Job) field.ErrorList {
	var r report.Report
	checkJobWithSelector(ctx, &r, &j.Spec, field.NewPath("spec"))
	if indexed(&j.Spec) && j.Spec.Completions != nil && *j.Spec.Completions > 0 {
		host := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
		if len(validation.IsDNS1123Label(host)) > 0 {
			r.Invalid(field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+host)
		}
	}
	return r.Errors
}

func indexed(spec *batchv1.JobSpec) bool {
	return spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
}

// checkGenerated requires the labels and the selector that generateSelector sets, unless the user
// chose to set the selector.
func checkGenerated(r *report.Report, j *batchv1.Job) {
	if j.Spec.ManualSelector != nil && *j.Spec.ManualSelector || j.Spec.Selector == nil {
		return
	}
	path := field.NewPath("spec", "template", "metadata", "labels")
	want := labels.Set{}
	generated := []struct{ key, value string }{
		{oldControllerUIDLabel, string(j.UID)}, {oldJobNameLabel, j.Name},
		{batchv1.ControllerUidLabel, string(j.UID)}, {batchv1.JobNameLabel, j.Name},
	}
	for _, l := range generated {
		want[l.key] = l.value
		got, ok := j.Spec.Template.Labels[l.key]
		detail := fmt.Sprintf("must be '%s'", l.value)
		if !ok {
			r.Required(path.Key(l.key), detail)
		} else if got != l.value {
			r.Invalid(path.Key(l.key), j.Spec.Template.Labels, detail)
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Matches(want) {
		r.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated")
	}
}

func checkJobWithSelector(ctx context.Context, r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	checkJob(ctx, r, spec, path)
	if spec.Selector == nil {
		r.Required(path.Child("selector"), "")
	} else {
		r.Selector(path.Child("selector"), spec.Selector)
	}
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil &&
		!s.Matches(labels.Set(spec.Template.Labels)) {
		r.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels,
			"`selector` does not match template `labels`")
	}
}

const maxManagedBy = 63

// checkJob checks the fields that jobs and the templates of cron jobs have in common.
func checkJob(ctx context.Context, r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	counts := []struct {
		name string
		n    *int32
	}{
		{"parallelism", spec.Parallelism}, {"completions", spec.Completions},
		{"backoffLimit", spec.BackoffLimit}, {"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished},
		{"backoffLimitPerIndex", spec.BackoffLimitPerIndex}, {"maxFailedIndexes", spec.MaxFailedIndexes},
	}
	for i, c := range counts {
		if i == 2 && spec.ActiveDeadlineSeconds != nil {
			r.NotNegative(path.Child("activeDeadlineSeconds"), *spec.ActiveDeadlineSeconds)
		}
		if c.n != nil {
			r.NotNegative(path.Child(c.name), int64(*c.n))
		}
	}
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		r.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")
	}
	if by := spec.ManagedBy; by != nil {
		r.Add(validation.IsDomainPrefixedPath(path.Child("managedBy"), *by)...)
		if len(*by) > maxManagedBy {
			r.TooLong(path.Child("managedBy"), maxManagedBy)
		}
	}
	checkCompletionMode(r, spec, path)
	if spec.PodFailurePolicy != nil {
		checkFailurePolicy(r, spec, path.Child("podFailurePolicy", "rules"))
	}
	if spec.SuccessPolicy != nil {
		if indexed(spec) {
			checkSuccessPolicy(r, spec, path.Child("successPolicy", "rules"))
		} else {
			r.Invalid(path.Child("successPolicy"), *spec.SuccessPolicy, "requires indexed completion mode")
		}
	}
	checkReplacement(r, spec, path.Child("podReplacementPolicy"))
	r.Add(podspec.ValidateTemplate(ctx, &spec.Template, path.Child("template"))...)
	checkEnds(r, spec, path.Child("template", "spec", "restartPolicy"))
}

func checkReplacement(r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	policy := spec.PodReplacementPolicy
	if policy == nil {
		return
	}
	if spec.PodFailurePolicy != nil {
		report.OneOf(r, path, *policy, batchv1.Failed)
	} else {
		report.OneOf(r, path, *policy, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
}

// checkEnds rejects a restart policy with which pods never finish.
func checkEnds(r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways, "":
		r.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			r.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified",
				corev1.RestartPolicyNever))
		}
	default:
		report.OneOf(r, path, policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}

const (
	maxIndexedParallelism = 100_000
	maxFailedIndexes      = 100_000
	manyCompletions       = 100_000
	mostWhenMany          = 10_000
)

func checkCompletionMode(r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	if mode := spec.CompletionMode; mode != nil {
		report.OneOf(r, path.Child("completionMode"), *mode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
		if *mode == batchv1.IndexedCompletion {
			checkIndexed(r, spec, path)
		}
	}
	if spec.CompletionMode != nil && *spec.CompletionMode != batchv1.NonIndexedCompletion {
		return
	}
	const detail = "requires indexed completion mode"
	if n := spec.BackoffLimitPerIndex; n != nil {
		r.Invalid(path.Child("backoffLimitPerIndex"), *n, detail)
	}
	if n := spec.MaxFailedIndexes; n != nil {
		r.Invalid(path.Child("maxFailedIndexes"), *n, detail)
	}
}

func checkIndexed(r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	parallelism, completions, failed := spec.Parallelism, spec.Completions, spec.MaxFailedIndexes
	if completions == nil {
		r.Required(path.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion))
	}
	if parallelism != nil && *parallelism > maxIndexedParallelism {
		r.Invalid(path.Child("parallelism"), *parallelism,
			fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexedParallelism,
				batchv1.IndexedCompletion))
	}
	if completions != nil && failed != nil && *failed > *completions {
		r.Invalid(path.Child("maxFailedIndexes"), *failed, "must be less than or equal to completions")
	}
	if failed != nil && *failed > maxFailedIndexes {
		r.Invalid(path.Child("maxFailedIndexes"), *failed, fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes))
	}
	if completions == nil || *completions <= manyCompletions || spec.BackoffLimitPerIndex == nil {
		return
	}
	detail := fmt.Sprintf(
		"must be less than or equal to %d when completions are above %d and used with backoff limit per index",
		mostWhenMany, manyCompletions)
	if failed == nil {
		r.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d",
			manyCompletions))
	}
	if parallelism != nil && *parallelism > mostWhenMany {
		r.Invalid(path.Child("parallelism"), *parallelism, detail)
	}
	if failed != nil && *failed > mostWhenMany {
		r.Invalid(path.Child("maxFailedIndexes"), *failed, detail)
	}
}

func validateJobUpdate(ctx context.Context, j, old *batchv1.Job) field.ErrorList {
	r := report.Report{Errors: checkWholeJob(podspec.Replacing(ctx, &old.Spec.Template), j)}
	spec, was, path := &j.Spec, &old.Spec, field.NewPath("spec")
	if !indexed(spec) {
		r.Immutable(path.Child("completions"), spec.Completions, was.Completions)
	} else if spec.Completions != nil && !equality.Semantic.DeepEqual(spec.Completions, was.Completions) &&
		(spec.Parallelism == nil || *spec.Completions != *spec.Parallelism) {
		r.Invalid(path.Child("completions"), spec.Completions, "can only be modified in tandem with spec.parallelism")
	}
	r.Immutable(path.Child("selector"), spec.Selector, was.Selector)
	checkTemplateUpdate(&r, j, old, path)
	r.Immutable(path.Child("completionMode"), spec.CompletionMode, was.CompletionMode)
	r.Immutable(path.Child("podFailurePolicy"), spec.PodFailurePolicy, was.PodFailurePolicy)
	r.Immutable(path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	r.Immutable(path.Child("managedBy"), spec.ManagedBy, was.ManagedBy)
	r.Immutable(path.Child("successPolicy"), spec.SuccessPolicy, was.SuccessPolicy)
	return r.Errors
}

// checkTemplateUpdate rejects changes of the template, with one exception: while the job is
// suspended and has no active pods, an update can change labels, annotations, resources, and the
// fields that restrict where the pods can run.
func checkTemplateUpdate(r *report.Report, j, old *batchv1.Job, path *field.Path) {
	t, was := &j.Spec.Template, old.Spec.Template.DeepCopy()
	suspended := old.Spec.Suspend != nil && *old.Spec.Suspend
	if !suspended {
		r.Immutable(path.Child("template"), t, was)
		return
	}
	if idle := old.Status.StartTime == nil || is(old, batchv1.JobSuspended); idle && old.Status.Active == 0 {
		was.Labels, was.Annotations = t.Labels, t.Annotations
		was.Spec.NodeSelector, was.Spec.Tolerations, was.Spec.SchedulingGates = t.Spec.NodeSelector,
			t.Spec.Tolerations, t.Spec.SchedulingGates
		was.Spec.Affinity = withNodeAffinity(was.Spec.Affinity, t.Spec.Affinity)
		takeResources(was.Spec.Containers, t.Spec.Containers)
		takeResources(was.Spec.InitContainers, t.Spec.InitContainers)
		r.Immutable(path.Child("template.spec"), t.Spec, was.Spec)
		return
	}
	r.Immutable(path.Child("template"), t, was)
}

func withNodeAffinity(old, is *corev1.Affinity) *corev1.Affinity {
	out := corev1.Affinity{}
	if old != nil {
		out = *old
	}
	out.NodeAffinity = nil
	if is != nil {
		out.NodeAffinity = is.NodeAffinity
	}
	if is == nil && out == (corev1.Affinity{}) {
		return nil
	}
	return &out
}

func takeResources(to, from []corev1.Container) {
	if len(to) != len(from) {
		return
	}
	for i := range to {
		if to[i].Name == from[i].Name {
			to[i].Resources = from[i].Resources
		}
	}
}
