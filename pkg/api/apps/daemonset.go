// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// daemonSetRow returns the row of the kind table for the resource daemonsets.
func daemonSetRow(p podspec.Policy) *resource.Row {
	return resource.Of[appsv1.DaemonSetList](resource.Kind[*appsv1.DaemonSet]{
		Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet", Namespaced: true,
		ShortNames: []string{"ds"}, Categories: []string{"all"},
		Gated: podspec.Gated[*appsv1.DaemonSet](),

		Default:                  defaultDaemonSet,
		Readable:                 readTemplateGeneration,
		FillEmpty:                func(d *appsv1.DaemonSet) { setTemplateGeneration(d, 0) },
		PrepareCreate:            prepareDaemonSetCreate,
		Validate:                 podspec.Validate(p, validateDaemonSet),
		PrepareUpdate:            prepareDaemonSetUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateDaemonSetUpdate),
		Warnings:                 warnDaemonSet,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderDaemonSets(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Desired", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["desiredNumberScheduled"]},
			{Name: "Current", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["currentNumberScheduled"]},
			{Name: "Ready", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberReady"]},
			{Name: "Up-to-date", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["updatedNumberScheduled"]},
			{Name: "Available", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberAvailable"]},
			{Name: "Node Selector", Type: "string", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"],
				Priority: column.Wide},
		},
		HiddenAnnotations: []string{appsv1.DeprecatedTemplateGeneration},
		Cells:             daemonSetCells,

		Subresources: []resource.Sub[*appsv1.DaemonSet]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareDaemonSetStatus,
				ValidateUpdate: validateDaemonSetStatus},
		},
	})
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	spec := &d.Spec
	podspec.DefaultSpec(&spec.Template.Spec)
	unset.Fill(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		rolling := unset.Make(&spec.UpdateStrategy.RollingUpdate)
		unset.Point(&rolling.MaxUnavailable, intstr.FromInt32(1))
		unset.Point(&rolling.MaxSurge, intstr.FromInt32(0))
	}
	unset.Point(&spec.RevisionHistoryLimit, revisionHistory)
	setTemplateGeneration(d, templateGeneration(d))
}

func prepareDaemonSetCreate(_ context.Context, d *appsv1.DaemonSet) {
	d.Status = appsv1.DaemonSetStatus{}
	d.Generation = 1
	setTemplateGeneration(d, max(templateGeneration(d), 1))
	podspec.DropInitAnnotations(&d.Spec.Template.ObjectMeta)
}

func prepareDaemonSetUpdate(_ context.Context, d, old *appsv1.DaemonSet) {
	d.Status = old.Status
	podspec.DropInitAnnotations(&d.Spec.Template.ObjectMeta)
	count := templateGeneration(old)
	if !equal.Values(d.Spec.Template, old.Spec.Template) {
		count++
	}
	setTemplateGeneration(d, count)
	strategy.Count(d, old, equal.Values(d.Spec, old.Spec))
}

func prepareDaemonSetStatus(_ context.Context, d, old *appsv1.DaemonSet) {
	d.Spec = old.Spec
	setTemplateGeneration(d, templateGeneration(old))
}

func validateDaemonSet(ctx context.Context, d *appsv1.DaemonSet) field.ErrorList {
	var r report.Report
	spec, path := &d.Spec, field.NewPath("spec")
	r.Selector(path.Child("selector"), spec.Selector)
	template := path.Child("template")
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil &&
		!s.Matches(labels.Set(spec.Template.Labels)) {
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
	r.Add(validateDaemonSet(podspec.Replacing(ctx, &old.Spec.Template), d)...)
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

func warnDaemonSet(_ context.Context, d, old *appsv1.DaemonSet) []string {
	return warnTemplate("", &d.Spec.Template, old == nil, old != nil && templateGeneration(d) != templateGeneration(old))
}

func daemonSetCells(d *appsv1.DaemonSet, env resource.CellEnv) []any {
	names, images := column.Containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, int64(d.Status.DesiredNumberScheduled), int64(d.Status.CurrentNumberScheduled), int64(d.Status.NumberReady),
		int64(d.Status.UpdatedNumberScheduled), int64(d.Status.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), env.Age(d.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}

func olderDaemonSets() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(extensionsv1beta1.SchemeGroupVersion.WithKind("DaemonSet"),
			func(in *extensionsv1beta1.DaemonSet, out *appsv1.DaemonSet) {
				metav1.SetMetaDataAnnotation(&out.ObjectMeta, appsv1.DeprecatedTemplateGeneration,
					strconv.FormatInt(in.Spec.TemplateGeneration, 10))
				unset.Fill(&out.Spec.UpdateStrategy.Type, appsv1.OnDeleteDaemonSetStrategyType)
			}),
	}
}

// The template generation counts changes of the pod template. Older versions of DaemonSet have a
// field for it. In apps/v1, it is in an annotation.

func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readTemplateGeneration returns an error if the annotation with the template generation is there
// but is not a number.
func readTemplateGeneration(d *appsv1.DaemonSet) error {
	said, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return nil
	}
	_, err := strconv.ParseInt(said, 10, 64)
	return err
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}
