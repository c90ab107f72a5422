// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateNamespace(_ context.Context, ns *corev1.Namespace) field.ErrorList {
	var r report.Report
	for _, finalizer := range ns.Spec.Finalizers {
		checkFinalizer(&r, string(finalizer), field.NewPath("spec", "finalizers"))
	}
	return r.Errors
}

func checkFinalizer(r *report.Report, name string, path *field.Path) {
	r.Add(apivalidation.ValidateFinalizerName(name, path)...)
	own := name == string(corev1.FinalizerKubernetes) || name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
	if !strings.Contains(name, "/") && !own {
		r.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

func validateNamespaceStatus(_ context.Context, ns, _ *corev1.Namespace) field.ErrorList {
	var r report.Report
	path := field.NewPath("status", "Phase")
	if ns.DeletionTimestamp.IsZero() {
		if ns.Status.Phase != corev1.NamespaceActive {
			r.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")
		}
	} else if ns.Status.Phase != corev1.NamespaceTerminating {
		r.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
	return r.Errors
}

func validateNamespaceFinalize(_ context.Context, ns, _ *corev1.Namespace) field.ErrorList {
	var r report.Report
	for i, finalizer := range ns.Spec.Finalizers {
		checkFinalizer(&r, string(finalizer), field.NewPath("spec", "finalizers").Index(i))
	}
	return r.Errors
}

func validatePodTemplate(ctx context.Context, t *corev1.PodTemplate) field.ErrorList {
	return podspec.ValidateTemplate(ctx, &t.Template, field.NewPath("template"))
}

func validatePodTemplateUpdate(ctx context.Context, t, _ *corev1.PodTemplate) field.ErrorList {
	return validatePodTemplate(ctx, t)
}

func validateReplicationController(ctx context.Context, rc *corev1.ReplicationController) field.ErrorList {
	var r report.Report
	spec, path := &rc.Spec, field.NewPath("spec")
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	if len(spec.Selector) == 0 {
		r.Required(path.Child("selector"), "")
	}
	if spec.Replicas == nil {
		r.Required(path.Child("replicas"), "")
	} else {
		r.NotNegative(path.Child("replicas"), int64(*spec.Replicas))
	}
	template := path.Child("template")
	if spec.Template == nil {
		r.Required(template, "")
		return r.Errors
	}
	if len(spec.Selector) > 0 && !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		r.Invalid(template.Child("metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`")
	}
	r.Add(podspec.ValidateTemplate(ctx, spec.Template, template)...)
	report.OneOf(&r, template.Child("spec", "restartPolicy"), spec.Template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if spec.Template.Spec.ActiveDeadlineSeconds != nil {
		r.Forbidden(template.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported")
	}
	return r.Errors
}

func validateReplicationControllerUpdate(ctx context.Context, rc, _ *corev1.ReplicationController) field.ErrorList {
	return validateReplicationController(ctx, rc)
}

func validateReplicationControllerStatus(_ context.Context, rc, _ *corev1.ReplicationController) field.ErrorList {
	var r report.Report
	s, path := &rc.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "fullyLabeledReplicas", N: s.FullyLabeledReplicas}, {Name: "readyReplicas", N: s.ReadyReplicas}, {Name: "availableReplicas", N: s.AvailableReplicas},
	}
	r.NotNegative(path.Child("replicas"), int64(s.Replicas))
	r.Counts(path, counts...)
	r.NotNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	r.Replicas(path, s.Replicas, counts...)
	return r.Errors
}
