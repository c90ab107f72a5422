// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxWindowSeconds = 3600
	maxPeriodSeconds = 1800
)

func validateHorizontalPodAutoscaler(_ context.Context, h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return autoscaler(h)
}

// autoscaler validates h. least is the lowest allowed minReplicas.
func autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	r, spec, path := &report.Report{}, &h.Spec, field.NewPath("spec")
	if spec.MinReplicas != nil {
		r.NotNegative(path.Child("minReplicas"), int64(*spec.MinReplicas))
	}
	switch {
	case spec.MaxReplicas == 0:
		r.Required(path.Child("maxReplicas"), "must be set and greater than 0")
	case spec.MaxReplicas < 0:
		r.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1")
	}
	if spec.MinReplicas != nil && spec.MaxReplicas < *spec.MinReplicas {
		r.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`")
	}
	target := spec.ScaleTargetRef
	reference(r, path.Child("scaleTargetRef"), &target, target.Kind == "ReplicationController")
	metricSpecs(r, path.Child("metrics"), spec)
	if b := spec.Behavior; b != nil {
		scalingRules(r, path.Child("behavior", "scaleUp"), b.ScaleUp)
		scalingRules(r, path.Child("behavior", "scaleDown"), b.ScaleDown)
	}
	return r.Errors
}

// validateHorizontalPodAutoscalerUpdate validates h, but an update may keep two values that older
// rules accepted: a minimum of zero replicas, and an invalid API version of the scale target.
func validateHorizontalPodAutoscalerUpdate(_ context.Context, h,
	old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	errs, was, is := autoscaler(h), old.Spec.ScaleTargetRef, h.Spec.ScaleTargetRef
	if is.Kind != was.Kind || is.APIVersion != was.APIVersion {
		return errs
	}
	at := field.NewPath("spec", "scaleTargetRef", "apiVersion").String()
	return slices.DeleteFunc(errs, func(err *field.Error) bool { return err.Field == at })
}

func validateHorizontalPodAutoscalerStatus(_ context.Context, h,
	_ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	r, path := &report.Report{}, field.NewPath("status")
	for i, c := range h.Status.Conditions {
		if c.ObservedGeneration != nil {
			r.NotNegative(path.Child("conditions").Index(i).Child("observedGeneration"), *c.ObservedGeneration)
		}
	}
	r.NotNegative(path.Child("currentReplicas"), int64(h.Status.CurrentReplicas))
	r.NotNegative(path.Child("desiredReplicas"), int64(h.Status.DesiredReplicas))
	return r.Errors
}

func reference(r *report.Report, path *field.Path, ref *autoscalingv2.CrossVersionObjectReference, core bool) {
	segment(r, path.Child("kind"), ref.Kind)
	segment(r, path.Child("name"), ref.Name)
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	switch {
	case err != nil:
		r.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error())
	case version.Group == "" && !core:
		r.Invalid(path.Child("apiVersion"), ref.APIVersion, "apiVersion must specify API group")
	}
}

// segment requires that value, which becomes a segment of a URL path, is not empty and can be one.
func segment(r *report.Report, path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
		return
	}
	r.Each(path, value, content.IsPathSegmentName(value))
}

func scalingRules(r *report.Report, path *field.Path, rules *autoscalingv2.HPAScalingRules) {
	if rules == nil {
		return
	}
	if window := rules.StabilizationWindowSeconds; window != nil {
		at := path.Child("stabilizationWindowSeconds")
		if *window < 0 {
			r.Invalid(at, window, "must be greater than or equal to zero")
		}
		if *window > maxWindowSeconds {
			r.Invalid(at, window, fmt.Sprintf("must be less than or equal to %d", maxWindowSeconds))
		}
	}
	if rules.SelectPolicy != nil {
		report.OneOf(r, path.Child("selectPolicy"), *rules.SelectPolicy,
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	}
	if len(rules.Policies) == 0 {
		r.Required(path.Child("policies"), "must specify at least one Policy")
	}
	for i, policy := range rules.Policies {
		at := path.Child("policies").Index(i)
		report.OneOf(r, at.Child("type"), policy.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
		if policy.Value <= 0 {
			r.Invalid(at.Child("value"), policy.Value, "must be greater than zero")
		}
		if policy.PeriodSeconds <= 0 {
			r.Invalid(at.Child("periodSeconds"), policy.PeriodSeconds, "must be greater than zero")
		}
		if policy.PeriodSeconds > maxPeriodSeconds {
			r.Invalid(at.Child("periodSeconds"), policy.PeriodSeconds,
				fmt.Sprintf("must be less than or equal to %d", maxPeriodSeconds))
		}
	}
	if rules.Tolerance != nil {
		r.Quantity(path.Child("tolerance"), *rules.Tolerance)
	}
}

func metricSpecs(r *report.Report, path *field.Path, spec *autoscalingv2.HorizontalPodAutoscalerSpec) {
	fromOutside := false
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		metricSpec(r, path.Index(i), m)
		fromOutside = fromOutside || m.Type == autoscalingv2.ObjectMetricSourceType ||
			m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if spec.MinReplicas != nil && *spec.MinReplicas == 0 && !fromOutside {
		// With zero pods, only an object metric or an external metric can show that pods are
		// needed.
		r.Forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas")
	}
}

// source is one of the fields of a metric that describe where its value comes from. Exactly one of
// these fields must be set: the one that belongs to the metric's type.
type source struct {
	kind  autoscalingv2.MetricSourceType
	name  string
	set   bool
	check func(r *report.Report, path *field.Path)
}

func sources(m *autoscalingv2.MetricSpec) []source {
	return []source{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil,
			func(r *report.Report, path *field.Path) { objectSource(r, path, m.Object) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil,
			func(r *report.Report, path *field.Path) { externalSource(r, path, m.External) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(r *report.Report, path *field.Path) {
			podsSource(r, path, m.Pods)
		}},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(r *report.Report, path *field.Path) {
			resourceName(r, path, m.Resource.Name)
			resourceTarget(r, path.Child("target"), &m.Resource.Target)
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(r *report.Report, path *field.Path) {
				resourceName(r, path, m.ContainerResource.Name)
				if m.ContainerResource.Name != "" {
					r.Add(podspec.MetricResourceName(m.ContainerResource.Name, path.Child("name"))...)
				}
				if m.ContainerResource.Container == "" {
					r.Required(path.Child("container"), "must specify a container")
				} else {
					r.Label(path.Child("container"), m.ContainerResource.Container)
				}
				resourceTarget(r, path.Child("target"), &m.ContainerResource.Target)
			}},
	}
}

func metricSpec(r *report.Report, path *field.Path, m *autoscalingv2.MetricSpec) {
	at := path.Child("type")
	if m.Type == "" {
		r.Required(at, "must specify a metric source type")
	}
	report.OneOf(r, at, m.Type,
		autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	all, set, expected := sources(m), 0, ""
	for _, s := range all {
		if s.set {
			if set++; set == 1 {
				s.check(r, path.Child(s.name))
			}
		}
	}
	for _, s := range all {
		if s.kind != m.Type {
			continue
		}
		expected = s.name
		if !s.set {
			r.Required(path.Child(s.name), "must populate information for the given metric source")
		}
	}
	if set == 1 {
		return
	}
	for _, s := range all {
		if s.set && s.name != expected {
			r.Forbidden(path.Child(s.name), "must populate the given metric source only")
		}
	}
}

func objectSource(r *report.Report, path *field.Path, s *autoscalingv2.ObjectMetricSource) {
	reference(r, path.Child("describedObject"), &s.DescribedObject, true)
	metricName(r, path, s.Metric)
	metricTarget(r, path.Child("target"), &s.Target)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		r.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue")
	}
}

func externalSource(r *report.Report, path *field.Path, s *autoscalingv2.ExternalMetricSource) {
	metricName(r, path, s.Metric)
	metricTarget(r, path.Child("target"), &s.Target)
	value, average := s.Target.Value != nil, s.Target.AverageValue != nil
	if !value && !average {
		r.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target")
	}
	if value && average {
		r.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target")
	}
}

func podsSource(r *report.Report, path *field.Path, s *autoscalingv2.PodsMetricSource) {
	metricName(r, path, s.Metric)
	metricTarget(r, path.Child("target"), &s.Target)
	if s.Target.AverageValue == nil {
		r.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue")
	}
}

func resourceName(r *report.Report, path *field.Path, name corev1.ResourceName) {
	if name == "" {
		r.Required(path.Child("name"), "must specify a resource name")
	}
}

func resourceTarget(r *report.Report, path *field.Path, t *autoscalingv2.MetricTarget) {
	metricTarget(r, path, t)
	utilization, average := t.AverageUtilization != nil, t.AverageValue != nil
	if !utilization && !average {
		r.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization")
	}
	if utilization && average {
		r.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization")
	}
}

func metricName(r *report.Report, path *field.Path, id autoscalingv2.MetricIdentifier) {
	if id.Name == "" {
		r.Required(path.Child("metric", "name"), "must specify a metric name")
		return
	}
	segment(r, path.Child("metric", "name"), id.Name)
}

func metricTarget(r *report.Report, path *field.Path, t *autoscalingv2.MetricTarget) {
	if t.Type == "" {
		r.Required(path.Child("type"), "must specify a metric target type")
	}
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		r.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue")
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		r.Invalid(path.Child("value"), t.Value, "must be positive")
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		r.Invalid(path.Child("averageValue"), t.AverageValue, "must be positive")
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		r.Invalid(path.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0")
	}
}
