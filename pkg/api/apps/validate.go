// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// checkSelector judges the selector of pods that kind makes, and returns it when
// it can be used.
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

// checkTemplate judges pods that run for ever.
func checkTemplate(ctx context.Context, r *report.Report, t *corev1.PodTemplateSpec, selector labels.Selector, kind string, path *field.Path) {
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
		r.Forbidden(path.Child("spec", "activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind))
	}
}

func notNegative(r *report.Report, path *field.Path, n *int32) {
	if n != nil {
		r.NotNegative(path, int64(*n))
	}
}

func validateDeployment(ctx context.Context, d *appsv1.Deployment) field.ErrorList {
	var r report.Report
	spec, path := &d.Spec, field.NewPath("spec")
	notNegative(&r, path.Child("replicas"), spec.Replicas)
	selector := checkSelector(&r, spec.Selector, "deployment", path.Child("selector"))
	checkTemplate(ctx, &r, &spec.Template, selector, "ReplicaSet", path.Child("template"))
	checkDeploymentStrategy(&r, &spec.Strategy, path.Child("strategy"))
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	notNegative(&r, path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		notNegative(&r, path.Child("progressDeadlineSeconds"), deadline)
		if *deadline <= spec.MinReadySeconds {
			r.Invalid(path.Child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds")
		}
	}
	return r.Errors
}

func checkDeploymentStrategy(r *report.Report, s *appsv1.DeploymentStrategy, path *field.Path) {
	at := path.Child("rollingUpdate")
	switch rolling := s.RollingUpdate; s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if rolling != nil {
			r.Forbidden(at, "may not be specified when strategy `type` is '"+string(s.Type)+"'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxSurge == nil {
			r.Required(at, "this should be defaulted and never be nil")
			return
		}
		r.IntOrPercent(at.Child("maxUnavailable"), *rolling.MaxUnavailable)
		r.IntOrPercent(at.Child("maxSurge"), *rolling.MaxSurge)
		if report.IsZero(*rolling.MaxUnavailable) && report.IsZero(*rolling.MaxSurge) {
			r.Invalid(at.Child("maxUnavailable"), *rolling.MaxUnavailable, "may not be 0 when `maxSurge` is 0")
		}
		r.AtMostAll(at.Child("maxUnavailable"), *rolling.MaxUnavailable)
	default:
		r.Add(field.NotSupported(path, s, []string{
			string(appsv1.RecreateDeploymentStrategyType), string(appsv1.RollingUpdateDeploymentStrategyType),
		}))
	}
}

func validateDeploymentUpdate(ctx context.Context, d, old *appsv1.Deployment) field.ErrorList {
	r := report.Report{Errors: validateDeployment(ctx, d)}
	r.Immutable(field.NewPath("spec", "selector"), d.Spec.Selector, old.Spec.Selector)
	return r.Errors
}

func validateDeploymentStatus(_ context.Context, d, old *appsv1.Deployment) field.ErrorList {
	var r report.Report
	s, path := &d.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "updatedReplicas", N: s.UpdatedReplicas}, {Name: "readyReplicas", N: s.ReadyReplicas}, {Name: "availableReplicas", N: s.AvailableReplicas},
	}
	r.NotNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	r.NotNegative(path.Child("replicas"), int64(s.Replicas))
	r.Counts(path, counts...)
	r.NotNegative(path.Child("unavailableReplicas"), int64(s.UnavailableReplicas))
	notNegative(&r, path.Child("terminatingReplicas"), s.TerminatingReplicas)
	notNegative(&r, path.Child("collisionCount"), s.CollisionCount)
	r.Replicas(path, s.Replicas, counts...)
	r.NotDecremented(path.Child("collisionCount"), s.CollisionCount, old.Status.CollisionCount)
	return r.Errors
}

func validateReplicaSet(ctx context.Context, rs *appsv1.ReplicaSet) field.ErrorList {
	var r report.Report
	spec, path := &rs.Spec, field.NewPath("spec")
	notNegative(&r, path.Child("replicas"), spec.Replicas)
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	selector := checkSelector(&r, spec.Selector, "deployment", path.Child("selector"))
	checkTemplate(ctx, &r, &spec.Template, selector, "ReplicaSet", path.Child("template"))
	return r.Errors
}

func validateReplicaSetUpdate(ctx context.Context, rs, old *appsv1.ReplicaSet) field.ErrorList {
	r := report.Report{Errors: validateReplicaSet(ctx, rs)}
	r.Immutable(field.NewPath("spec", "selector"), rs.Spec.Selector, old.Spec.Selector)
	return r.Errors
}

func validateReplicaSetStatus(_ context.Context, rs, _ *appsv1.ReplicaSet) field.ErrorList {
	var r report.Report
	s, path := &rs.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "fullyLabeledReplicas", N: s.FullyLabeledReplicas}, {Name: "readyReplicas", N: s.ReadyReplicas}, {Name: "availableReplicas", N: s.AvailableReplicas},
	}
	r.NotNegative(path.Child("replicas"), int64(s.Replicas))
	r.Counts(path, counts...)
	r.NotNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	notNegative(&r, path.Child("terminatingReplicas"), s.TerminatingReplicas)
	r.Replicas(path, s.Replicas, counts...)
	return r.Errors
}

func validateDaemonSet(ctx context.Context, d *appsv1.DaemonSet) field.ErrorList {
	var r report.Report
	spec, path := &d.Spec, field.NewPath("spec")
	r.Selector(path.Child("selector"), spec.Selector)
	template := path.Child("template")
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !s.Matches(labels.Set(spec.Template.Labels)) {
		r.Invalid(template.Child("metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`")
	}
	if s := spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		r.Invalid(path.Child("selector"), s, "empty selector is invalid for daemonset")
	}
	r.Add(podspec.ValidateTemplate(ctx, &spec.Template, template)...)
	checkForever(&r, &spec.Template, "DaemonSet", template)
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	r.NotNegative(path.Child("templateGeneration"), templateGeneration(d))
	checkDaemonStrategy(&r, &spec.UpdateStrategy, path.Child("updateStrategy"))
	notNegative(&r, path.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)
	return r.Errors
}

func checkDaemonStrategy(r *report.Report, s *appsv1.DaemonSetUpdateStrategy, path *field.Path) {
	at := path.Child("rollingUpdate")
	switch rolling := s.RollingUpdate; s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		if rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxSurge == nil {
			r.Required(at, "")
			return
		}
		r.IntOrPercent(at.Child("maxUnavailable"), *rolling.MaxUnavailable)
		r.IntOrPercent(at.Child("maxSurge"), *rolling.MaxSurge)
		r.AtMostAll(at.Child("maxUnavailable"), *rolling.MaxUnavailable)
		r.AtMostAll(at.Child("maxSurge"), *rolling.MaxSurge)
		switch unavailable, surge := !report.IsZero(*rolling.MaxUnavailable), !report.IsZero(*rolling.MaxSurge); {
		case unavailable && surge:
			r.Invalid(at.Child("maxSurge"), *rolling.MaxSurge, "may not be set when maxUnavailable is non-zero")
		case !unavailable && !surge:
			r.Required(at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0")
		}
	default:
		r.Add(field.NotSupported(path, s, []string{
			string(appsv1.RollingUpdateDaemonSetStrategyType), string(appsv1.OnDeleteDaemonSetStrategyType),
		}))
	}
}

func validateDaemonSetUpdate(ctx context.Context, d, old *appsv1.DaemonSet) field.ErrorList {
	var r report.Report
	r.Immutable(field.NewPath("spec", "selector"), d.Spec.Selector, old.Spec.Selector)
	r.Add(validateDaemonSet(ctx, d)...)
	return r.Errors
}

func validateDaemonSetStatus(_ context.Context, d, old *appsv1.DaemonSet) field.ErrorList {
	var r report.Report
	s, path := &d.Status, field.NewPath("status")
	for _, c := range []report.Count{
		{Name: "currentNumberScheduled", N: s.CurrentNumberScheduled}, {Name: "numberMisscheduled", N: s.NumberMisscheduled},
		{Name: "desiredNumberScheduled", N: s.DesiredNumberScheduled}, {Name: "numberReady", N: s.NumberReady},
		{Name: "updatedNumberScheduled", N: s.UpdatedNumberScheduled}, {Name: "numberAvailable", N: s.NumberAvailable},
		{Name: "numberUnavailable", N: s.NumberUnavailable},
	} {
		r.NotNegative(path.Child(c.Name), int64(c.N))
	}
	r.NotNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	notNegative(&r, path.Child("collisionCount"), s.CollisionCount)
	r.NotDecremented(path.Child("collisionCount"), s.CollisionCount, old.Status.CollisionCount)
	return r.Errors
}

func validateControllerRevision(_ context.Context, c *appsv1.ControllerRevision) field.ErrorList {
	var r report.Report
	r.NotNegative(field.NewPath("revision"), c.Revision)
	path := field.NewPath("data")
	if c.Data.Raw == nil {
		r.Required(path, "data is mandatory")
		return r.Errors
	}
	var v any
	if err := json.Unmarshal(c.Data.Raw, &v); err != nil {
		r.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))
	} else if v == nil {
		r.Required(path, "data is mandatory")
	} else if _, ok := v.(map[string]any); !ok {
		r.Required(path, "data must be a valid JSON object")
	}
	return r.Errors
}

func validateControllerRevisionUpdate(_ context.Context, c, old *appsv1.ControllerRevision) field.ErrorList {
	var r report.Report
	r.NotNegative(field.NewPath("revision"), c.Revision)
	r.Immutable(field.NewPath("data"), c.Data, old.Data)
	return r.Errors
}

// nameStatefulSet keeps names short enough for the host names of pods.
func nameStatefulSet(name string, prefix bool) []string {
	return apivalidation.NameIsDNSLabel(name, prefix)
}
