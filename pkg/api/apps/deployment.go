// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// deploymentRow returns the row of the kind table for the resource deployments.
func deploymentRow(p podspec.Policy) *resource.Row {
	return resource.Of[appsv1.DeploymentList](resource.Kind[*appsv1.Deployment]{
		Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true,
		ShortNames: []string{"deploy"}, Categories: []string{"all"},
		Gated: podspec.Gated[*appsv1.Deployment](),

		Default:                  defaultDeployment,
		FillEmpty:                func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32) },
		PrepareCreate:            prepareDeploymentCreate,
		Validate:                 podspec.Validate(p, validateDeployment),
		PrepareUpdate:            prepareDeploymentUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateDeploymentUpdate),
		Warnings:                 warnDeployment,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderDeployments(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Ready", Type: "string", Description: "Number of the pod with ready state"},
			{Name: "Up-to-date", Type: "string", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["updatedReplicas"]},
			{Name: "Available", Type: "string", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["availableReplicas"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: appsv1.DeploymentSpec{}.SwaggerDoc()["selector"],
				Priority: column.Wide},
		},
		Cells: deploymentCells,

		Subresources: []resource.Sub[*appsv1.Deployment]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"},
				Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: deploymentScale()}},
			{Subresource: strategy.View("status", "spec", "metadata.labels"),
				PrepareUpdate: prepareDeploymentStatus, ValidateUpdate: validateDeploymentStatus},
		},
	})
}

const (
	revisionHistory         int32 = 10
	progressDeadlineSeconds int32 = 600
)

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	podspec.DefaultSpec(&spec.Template.Spec)
	unset.Point(&spec.Replicas, 1)
	unset.Fill(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		rolling := unset.Make(&spec.Strategy.RollingUpdate)
		unset.Point(&rolling.MaxUnavailable, intstr.FromString("25%"))
		unset.Point(&rolling.MaxSurge, intstr.FromString("25%"))
	}
	unset.Point(&spec.RevisionHistoryLimit, revisionHistory)
	unset.Point(&spec.ProgressDeadlineSeconds, progressDeadlineSeconds)
}

func prepareDeploymentCreate(_ context.Context, d *appsv1.Deployment) {
	d.Status = appsv1.DeploymentStatus{}
	d.Generation = 1
	podspec.DropInitAnnotations(&d.Spec.Template.ObjectMeta)
}

// prepareDeploymentUpdate keeps the status. It increments the generation if the spec or the
// annotations change. Annotations count because the controller copies them to ReplicaSets.
func prepareDeploymentUpdate(_ context.Context, d, old *appsv1.Deployment) {
	d.Status = old.Status
	podspec.DropInitAnnotations(&d.Spec.Template.ObjectMeta)
	strategy.Count(d, old, equal.Values(d.Spec, old.Spec) && equal.Values(d.Annotations, old.Annotations))
}

func prepareDeploymentStatus(_ context.Context, d, old *appsv1.Deployment) {
	d.Spec = old.Spec
	d.Labels = old.Labels
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
	r := report.Report{Errors: validateDeployment(podspec.Replacing(ctx, &old.Spec.Template), d)}
	r.Immutable(field.NewPath("spec", "selector"), d.Spec.Selector, old.Spec.Selector)
	return r.Errors
}

func validateDeploymentStatus(_ context.Context, d, old *appsv1.Deployment) field.ErrorList {
	var r report.Report
	s, path := &d.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "updatedReplicas", N: s.UpdatedReplicas}, {Name: "readyReplicas", N: s.ReadyReplicas},
		{Name: "availableReplicas", N: s.AvailableReplicas},
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

func warnDeployment(_ context.Context, d, old *appsv1.Deployment) []string {
	return warnTemplate(d.Name, &d.Spec.Template, old == nil, old != nil && d.Generation != old.Generation)
}

func deploymentCells(d *appsv1.Deployment, env resource.CellEnv) []any {
	selector := "<invalid>"
	if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
		selector = s.String()
	}
	names, images := column.Containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, wanted(d.Spec.Replicas)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), env.Age(d.CreationTimestamp),
		names, images, selector,
	}
}

func deploymentScale() *resource.Scale {
	return scale(func(d *appsv1.Deployment) (**int32, int32, *metav1.LabelSelector) {
		return &d.Spec.Replicas, d.Status.Replicas, d.Spec.Selector
	})
}

// The kinds of this group were once in the group extensions. Values of fields that apps/v1 does not
// have are kept in annotations. Fields that are unset have the default of the stored version.

func olderDeployments() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(appsv1beta1.SchemeGroupVersion.WithKind("Deployment"),
			func(in *appsv1beta1.Deployment, out *appsv1.Deployment) {
				if to := in.Spec.RollbackTo; to != nil {
					keepRevision(out, to.Revision)
				}
				unset.Point(&out.Spec.RevisionHistoryLimit, 2)
			}),
		resource.NewStoredForm(extensionsv1beta1.SchemeGroupVersion.WithKind("Deployment"),
			func(in *extensionsv1beta1.Deployment, out *appsv1.Deployment) {
				if to := in.Spec.RollbackTo; to != nil {
					keepRevision(out, to.Revision)
				}
				defaultOfExtensions(&out.Spec)
			}),
	}
}

// defaultOfExtensions sets the defaults of the group extensions where they differ from those of
// apps/v1. The largest number stands for no limit.
func defaultOfExtensions(spec *appsv1.DeploymentSpec) {
	unset.Fill(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		rolling := unset.Make(&spec.Strategy.RollingUpdate)
		unset.Point(&rolling.MaxUnavailable, intstr.FromInt32(1))
		unset.Point(&rolling.MaxSurge, intstr.FromInt32(1))
	}
	unset.Point(&spec.RevisionHistoryLimit, math.MaxInt32)
	unset.Point(&spec.ProgressDeadlineSeconds, math.MaxInt32)
}

func keepRevision(d *appsv1.Deployment, revision int64) {
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedRollbackTo, strconv.FormatInt(revision, 10))
}
