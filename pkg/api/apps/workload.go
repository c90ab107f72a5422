// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// checkSelector validates the selector of a workload. kind names the kind of workload in messages.
// checkSelector returns the parsed selector, or nil if it cannot be parsed.
func checkSelector(r *report.Report, s *metav1.LabelSelector, kind string, path *field.Path) labels.Selector {
	if s == nil {
		r.Required(path, "")
	} else {
		r.Selector(path, s)
		if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
			r.Invalid(path, s, "empty selector is invalid for "+kind)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		detail := "invalid label selector"
		if kind == "statefulset" {
			detail = ""
		}
		r.Invalid(path, s, detail)
		return nil
	}
	return selector
}

// checkTemplate validates the template of pods that run until they are deleted. If the selector
// could not be parsed and is nil, it checks nothing.
func checkTemplate(ctx context.Context, r *report.Report, t *corev1.PodTemplateSpec, selector labels.Selector,
	kind string, path *field.Path) {
	if selector == nil {
		return
	}
	if !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		r.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
	}
	r.Add(podspec.ValidateTemplate(ctx, t, path)...)
	checkForever(r, t, kind, path)
}

func checkForever(r *report.Report, t *corev1.PodTemplateSpec, kind string, path *field.Path) {
	report.OneOf(r, path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if t.Spec.ActiveDeadlineSeconds != nil {
		r.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind))
	}
}

func notNegative(r *report.Report, path *field.Path, n *int32) {
	if n != nil {
		r.NotNegative(path, int64(*n))
	}
}

// warnTemplate returns warnings about a template that is new or has changed. Only a new object gets
// warnings about its name.
func warnTemplate(name string, template *corev1.PodTemplateSpec, isNew, changed bool) []string {
	path := field.NewPath("spec", "template")
	switch {
	case isNew:
		return podspec.WarnOfTemplate(name, path, template)
	case changed:
		return podspec.WarnOfTemplate("", path, template)
	}
	return nil
}

func wanted(replicas *int32) int64 {
	if replicas == nil {
		return 0
	}
	return int64(*replicas)
}

func scale[T any](parts func(*T) (replicas **int32, status int32, selector *metav1.LabelSelector)) *resource.Scale {
	return &resource.Scale{
		Get: func(obj resource.Object) (spec, status int32, selector string, err error) {
			replicas, status, labels := parts(any(obj).(*T))
			if *replicas != nil {
				spec = **replicas
			}
			s, err := metav1.LabelSelectorAsSelector(labels)
			if err != nil {
				return 0, 0, "", err
			}
			return spec, status, s.String(), nil
		},
		Set: func(obj resource.Object, n int32) {
			replicas, _, _ := parts(any(obj).(*T))
			*replicas = &n
		},
		SpecPath: "spec.replicas",
	}
}
