// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxWindowSeconds = 3600
	maxPeriodSeconds = 1800
)

func validateHorizontalPodAutoscaler(_ context.Context, h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return autoscaler(h, 1)
}

// autoscaler judges h, which may have no fewer than least replicas.
func autoscaler(h *autoscalingv2.HorizontalPodAutoscaler, least int32) field.ErrorList {
	r, spec, path := &report.Report{}, &h.Spec, field.NewPath("spec")
	if spec.MinReplicas != nil && *spec.MinReplicas < least {
		r.Invalid(path.Child("minReplicas"), *spec.MinReplicas, fmt.Sprintf("must be greater than or equal to %d", least))
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

// validateHorizontalPodAutoscalerUpdate lets stay what other rules once let in:
// a minimum of zero, and what is scaled.
func validateHorizontalPodAutoscalerUpdate(_ context.Context, h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	least := int32(1)
	if old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		least = 0
	}
	errs, was, is := autoscaler(h, least), old.Spec.ScaleTargetRef, h.Spec.ScaleTargetRef
	if is.Kind != was.Kind || is.APIVersion != was.APIVersion {
		return errs
	}
	at := field.NewPath("spec", "scaleTargetRef", "apiVersion").String()
	return slices.DeleteFunc(errs, func(err *field.Error) bool { return err.Field == at })
}

func validateHorizontalPodAutoscalerStatus(_ context.Context, h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	r, path := &report.Report{}, field.NewPath("status")
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

// segment judges a name that becomes a part of a URL.
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
			r.Invalid(at.Child("periodSeconds"), policy.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPeriodSeconds))
		}
	}
	if rules.Tolerance != nil {
		r.Quantity(path.Child("tolerance"), *rules.Tolerance)
	}
}
