// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validatePod(ctx context.Context, pod *corev1.Pod) field.ErrorList {
	r := report.Report{Errors: validatePodContent(ctx, pod, nil)}
	spec := field.NewPath("spec")
	if len(pod.Spec.EphemeralContainers) > 0 {
		r.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		r.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	r.Add(podspec.ValidateProfiles(pod.Annotations, &pod.Spec, spec)...)
	return r.Errors
}

// validatePodContent checks the rules that apply to every create and update of a pod. The argument
// was is the specification before the update, or nil on create.
func validatePodContent(ctx context.Context, pod *corev1.Pod, was *corev1.PodSpec) field.ErrorList {
	var r report.Report
	spec := field.NewPath("spec")
	r.Add(podspec.ValidateAnnotations(pod.Annotations, &pod.Spec, field.NewPath("metadata", "annotations"))...)
	r.Add(podspec.ValidateSpecUpdate(ctx, &pod.Spec, was, &pod.ObjectMeta, spec)...)
	if pod.Spec.ServiceAccountName == "" {
		for i := range pod.Spec.Volumes {
			refuseTokens(&r, pod.Spec.Volumes[i].Projected, spec.Child("volumes").Index(i).Child("projected", "sources"))
		}
	}
	for place, c := range podspec.Containers(&pod.Spec, spec) {
		if place.Role == podspec.Main {
			refusePadding(&r, c.Image, place.Path)
		}
	}
	for place, c := range podspec.Containers(&pod.Spec, spec) {
		if place.Role == podspec.Init {
			refusePadding(&r, c.Image, place.Path)
		}
	}
	return r.Errors
}

func refuseTokens(r *report.Report, p *corev1.ProjectedVolumeSource, path *field.Path) {
	if p == nil {
		return
	}
	for i := range p.Sources {
		if p.Sources[i].ServiceAccountToken != nil {
			r.Forbidden(path.Index(i).Child("serviceAccountToken"), "must not be specified when serviceAccountName is not set")
		}
	}
}

func refusePadding(r *report.Report, image string, at *field.Path) {
	if strings.TrimSpace(image) != image {
		r.Invalid(at.Child("image"), image, "must not have leading or trailing whitespace")
	}
}

// mutable lists the fields of a pod that can be changed. It is a part of an error message.
const mutable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

func validatePodUpdate(ctx context.Context, pod, old *corev1.Pod) field.ErrorList {
	r := report.Report{Errors: validatePodContent(ctx, pod, &old.Spec)}
	r.Add(podspec.ValidateAnnotationUpdate(pod, old, field.NewPath("metadata", "annotations"))...)
	spec := field.NewPath("spec")
	if !sameContainers(&r, pod.Spec.Containers, old.Spec.Containers, spec.Child("containers")) ||
		!sameContainers(&r, pod.Spec.InitContainers, old.Spec.InitContainers, spec.Child("initContainers")) ||
		!validDeadline(&r, pod, old, spec.Child("activeDeadlineSeconds")) {
		return r.Errors
	}
	onlyMoreTolerations(&r, pod, old, spec.Child("tolerations"))
	onlyFewerGates(&r, pod, old, spec.Child("schedulingGates"))
	if equal.Values(pod.Spec, old.Spec) {
		return r.Errors
	}
	rest := withoutMutable(pod, old)
	if len(old.Spec.SchedulingGates) > 0 {
		onlyNarrower(&r, rest, &old.Spec, spec)
	}
	if !equal.Values(*rest, old.Spec) {
		r.Forbidden(spec, fmt.Sprintf("pod updates may not change fields other than %s\n%v", mutable,
			diff.Diff(old.Spec, *rest)))
	}
	return r.Errors
}

// sameContainers reports whether an update keeps the number of containers. If not, the caller skips
// the checks that compare containers.
func sameContainers(r *report.Report, containers, old []corev1.Container, path *field.Path) bool {
	if len(containers) != len(old) {
		r.Forbidden(path, "pod updates may not add or remove containers")
		return false
	}
	for i := range containers {
		if containers[i].Image == "" {
			r.Required(path.Index(i).Child("image"), "")
		}
		refusePadding(r, containers[i].Image, path.Index(i))
	}
	return true
}

func validDeadline(r *report.Report, pod, old *corev1.Pod, path *field.Path) bool {
	deadline, was := pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds
	switch {
	case deadline == nil && was != nil:
		r.Invalid(path, deadline, "must not update from a positive integer to nil value")
	case deadline == nil:
	case *deadline < 0 || *deadline > math.MaxInt32:
		r.Invalid(path, *deadline, validation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case was != nil && *was < *deadline:
		r.Invalid(path, *deadline, "must be less than or equal to previous value")
		return false
	}
	return true
}

func onlyMoreTolerations(r *report.Report, pod, old *corev1.Pod, path *field.Path) {
	for _, was := range old.Spec.Tolerations {
		found := false
		for _, t := range pod.Spec.Tolerations {
			was.TolerationSeconds = t.TolerationSeconds
			found = found || equal.Values(was, t)
		}
		if !found {
			r.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
	r.Add(podspec.ValidateTolerations(pod.Spec.Tolerations, path)...)
}

func onlyFewerGates(r *report.Report, pod, old *corev1.Pod, path *field.Path) {
	for i, gate := range pod.Spec.SchedulingGates {
		known := false
		for _, was := range old.Spec.SchedulingGates {
			known = known || was.Name == gate.Name
		}
		if !known {
			r.Forbidden(path.Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))
		}
	}
}

// withoutMutable returns a copy of pod's specification. The fields that an update can change have
// the values of old, so any other difference from old is an error.
func withoutMutable(pod, old *corev1.Pod) *corev1.PodSpec {
	rest, was := pod.Spec.DeepCopy(), old.Spec.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = was.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = was.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds = was.ActiveDeadlineSeconds
	rest.SchedulingGates = was.SchedulingGates
	rest.Tolerations = was.Tolerations
	if grace := rest.TerminationGracePeriodSeconds; grace != nil && *grace == 1 &&
		was.TerminationGracePeriodSeconds != nil && *was.TerminationGracePeriodSeconds < 0 {
		rest.TerminationGracePeriodSeconds = was.TerminationGracePeriodSeconds
	}
	return rest
}

// onlyNarrower checks the changes of node selector and node affinity of a pod with scheduling
// gates. The pod may only select fewer nodes than before. In the argument rest, which is a copy of
// the new specification, it sets both fields to the old values, because it has checked them.
func onlyNarrower(r *report.Report, rest, old *corev1.PodSpec, path *field.Path) {
	for key, value := range old.NodeSelector {
		if got, ok := rest.NodeSelector[key]; !ok || got != value {
			r.Invalid(path.Child("nodeSelector"), rest.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	rest.NodeSelector = old.NodeSelector
	is, was := nodeAffinity(rest), nodeAffinity(old)
	if equal.Values(is, was) {
		return
	}
	onlyMoreTerms(r, is, was,
		path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
	switch {
	case rest.Affinity == nil:
		rest.Affinity = &corev1.Affinity{NodeAffinity: was}
	case old.Affinity == nil && rest.Affinity.PodAffinity == nil && rest.Affinity.PodAntiAffinity == nil:
		rest.Affinity = nil
	default:
		rest.Affinity.NodeAffinity = was
	}
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

func onlyMoreTerms(r *report.Report, is, was *corev1.NodeAffinity, path *field.Path) {
	if was == nil || was.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	before := was.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var after []corev1.NodeSelectorTerm
	if is != nil && is.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		after = is.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	if len(before) != len(after) {
		r.Invalid(path, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range before {
		if !extends(&after[i], &before[i]) {
			r.Invalid(path.Index(i), after[i], "only additions are allowed (no mutations or deletions)")
		}
	}
}

// extends reports whether term has all requirements of old and possibly more. If old has no
// requirements, it selects no nodes. Adding a requirement would then select more nodes, so term
// must have none either.
func extends(term, old *corev1.NodeSelectorTerm) bool {
	n, m := len(old.MatchExpressions), len(old.MatchFields)
	if n+m == 0 {
		return len(term.MatchExpressions)+len(term.MatchFields) == 0
	}
	return len(term.MatchExpressions) >= n && len(term.MatchFields) >= m &&
		equal.Values(term.MatchExpressions[:n], old.MatchExpressions) &&
		equal.Values(term.MatchFields[:m], old.MatchFields)
}

func validatePodEphemeralContainers(ctx context.Context, pod, old *corev1.Pod) field.ErrorList {
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	r := report.Report{Errors: validatePodContent(ctx, pod, &old.Spec)}
	r.Add(podspec.ValidateAnnotationUpdate(pod, old, field.NewPath("metadata", "annotations"))...)
	path := field.NewPath("spec", "ephemeralContainers")
	named := map[string]*corev1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		named[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for _, was := range old.Spec.EphemeralContainers {
		is, ok := named[was.Name]
		if !ok {
			r.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name))
		} else if !equal.Values(was, *is) {
			r.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name,
				diff.Diff(was, *is)))
		}
	}
	return r.Errors
}
