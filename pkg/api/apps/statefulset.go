// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/core"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// statefulSetRow returns the row of the kind table for the resource statefulsets.
func statefulSetRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[appsv1.StatefulSet, appsv1.StatefulSetSpec,
		appsv1.StatefulSetStatus](func(o *appsv1.StatefulSet) (*appsv1.StatefulSetSpec, *appsv1.StatefulSetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[appsv1.StatefulSetList](resource.Kind[*appsv1.StatefulSet]{
		Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet", Namespaced: true,
		ShortNames: []string{"sts"}, Categories: []string{"all"},
		Gated: podspec.Gated[*appsv1.StatefulSet](),

		Default:                  defaultStatefulSet,
		DefaultsChanged:          true, // maxUnavailable has a default since 1.37
		FillEmpty:                func(o *appsv1.StatefulSet) { o.Spec.Replicas = new(int32) },
		PrepareCreate:            prepareStatefulSetCreate,
		Validate:                 podspec.Validate(p, validateStatefulSet),
		PrepareUpdate:            prepareStatefulSetUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateStatefulSetUpdate),
		Warnings:                 warnStatefulSet,
		ValidateName:             nameStatefulSet,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderStatefulSets(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Ready", Type: "string", Description: "Number of the pod with ready state"},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
		},
		Cells: statefulSetCells,

		Subresources: []resource.Sub[*appsv1.StatefulSet]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"},
				Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: statefulSetScale()}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateStatefulSetStatus},
		},
	})
}

// nameStatefulSet requires that the name is a DNS label, because it becomes a part of the pods'
// host names.
func nameStatefulSet(name string, prefix bool) []string {
	return apivalidation.NameIsDNSLabel(name, prefix)
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	podspec.DefaultSpec(&spec.Template.Spec)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		core.DefaultClaim(claim)
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
	}
	unset.Fill(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	// If the client sends a type of strategy without parameters, the parameters stay unset.
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		unset.Make(&spec.UpdateStrategy.RollingUpdate)
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil &&
		spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		unset.Point(&rolling.Partition, 0)
		unset.Point(&rolling.MaxUnavailable, intstr.FromInt32(1))
	}
	retention := unset.Make(&spec.PersistentVolumeClaimRetentionPolicy)
	unset.Fill(&retention.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	unset.Fill(&retention.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	unset.Point(&spec.Replicas, 1)
	unset.Point(&spec.RevisionHistoryLimit, revisionHistory)
}

// olderStatefulSets returns the form in which servers stored sets of v1beta1. Its default strategy is
// another one.
func olderStatefulSets() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm(appsv1beta1.SchemeGroupVersion.WithKind("StatefulSet"),
		func(_ *appsv1beta1.StatefulSet, out *appsv1.StatefulSet) {
			unset.Fill(&out.Spec.UpdateStrategy.Type, appsv1.OnDeleteStatefulSetStrategyType)
		})}
}

func prepareStatefulSetCreate(_ context.Context, s *appsv1.StatefulSet) {
	s.Status = appsv1.StatefulSetStatus{}
	s.Generation = 1
	podspec.DropInitAnnotations(&s.Spec.Template.ObjectMeta)
}

func prepareStatefulSetUpdate(_ context.Context, s, old *appsv1.StatefulSet) {
	s.Status = old.Status
	podspec.DropInitAnnotations(&s.Spec.Template.ObjectMeta)
	strategy.Count(s, old, equal.Values(s.Spec, old.Spec))
}

func validateStatefulSet(ctx context.Context, s *appsv1.StatefulSet) field.ErrorList {
	return validateStatefulSetSpec(ctx, &s.Spec, true)
}

// validateStatefulSetSpec validates spec. fixed is true for a new object. It is false for an
// update, in which the fields that cannot change need no check.
func validateStatefulSetSpec(ctx context.Context, spec *appsv1.StatefulSetSpec, fixed bool) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	switch spec.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		r.Required(path.Child("podManagementPolicy"), "")
	default:
		r.Invalid(path.Child("podManagementPolicy"), spec.PodManagementPolicy,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement))
	}
	checkStatefulStrategy(&r, &spec.UpdateStrategy, path.Child("updateStrategy"))
	if p := spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		retain, remove := appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		report.OneOf(&r, at.Child("whenDeleted"), p.WhenDeleted, retain, remove)
		report.OneOf(&r, at.Child("whenScaled"), p.WhenScaled, retain, remove)
	}
	if fixed {
		for i := range spec.VolumeClaimTemplates {
			r.Add(podspec.ValidateClaimSpec(&spec.VolumeClaimTemplates[i].Spec,
				path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
		}
	}
	notNegative(&r, path.Child("replicas"), spec.Replicas)
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	if spec.Ordinals != nil {
		r.NotNegative(path.Child("ordinals.start"), int64(spec.Ordinals.Start))
	}
	if fixed && spec.ServiceName != "" {
		r.Label(path.Child("serviceName"), spec.ServiceName)
	}
	selector := checkSelector(&r, spec.Selector, "statefulset", path.Child("selector"))
	checkStatefulTemplate(ctx, &r, spec, selector, path.Child("template"))
	return r.Errors
}

func checkStatefulStrategy(r *report.Report, s *appsv1.StatefulSetUpdateStrategy, path *field.Path) {
	at := path.Child("rollingUpdate")
	switch rolling := s.RollingUpdate; s.Type {
	case "":
		r.Required(path, "")
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			r.Invalid(at, rolling,
				fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType))
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if rolling == nil {
			return
		}
		notNegative(r, at.Child("partition"), rolling.Partition)
		if most := rolling.MaxUnavailable; most != nil {
			r.IntOrPercent(at.Child("maxUnavailable"), *most)
			if report.IsZero(*most) {
				r.Invalid(at.Child("maxUnavailable"), *most, "cannot be 0")
			}
			r.AtMostAll(at.Child("maxUnavailable"), *most)
		}
	default:
		r.Invalid(path, s, fmt.Sprintf("must be '%s' or '%s'",
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType))
	}
}

// checkStatefulTemplate validates the pod template in the form in which the controller uses it for
// pods: with the volumes of the claims, and without host name and subdomain, which the controller
// sets for each pod.
func checkStatefulTemplate(ctx context.Context, r *report.Report, spec *appsv1.StatefulSetSpec,
	selector labels.Selector, path *field.Path) {
	if selector != nil {
		t := spec.Template.DeepCopy()
		if !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
			r.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
		}
		t.Spec.Subdomain, t.Spec.Hostname = "", ""
		t.Spec.Volumes = withClaims(t.Spec.Volumes, spec.VolumeClaimTemplates)
		r.Add(podspec.ValidateTemplate(ctx, t, path)...)
		// Kubernetes checks the labels and annotations a second time under these paths, so that
		// clients get each error twice.
		r.Labels(path.Child("labels"), t.Labels)
		r.Annotations(path.Child("annotations"), t.Annotations)
		r.Add(podspec.ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"))...)
	}
	checkForever(r, &spec.Template, "StatefulSet", path)
}

func withClaims(volumes []corev1.Volume, claims []corev1.PersistentVolumeClaim) []corev1.Volume {
	named := map[string]bool{}
	var all []corev1.Volume
	for i := range claims {
		name := claims[i].Name
		if named[name] {
			continue
		}
		named[name] = true
		all = append(all, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	for _, v := range volumes {
		if !named[v.Name] {
			all = append(all, v)
		}
	}
	return all
}

func validateStatefulSetUpdate(ctx context.Context, s, old *appsv1.StatefulSet) field.ErrorList {
	r := report.Report{Errors: validateStatefulSetSpec(podspec.Replacing(ctx, &old.Spec.Template), &s.Spec, false)}
	path, spec, was := field.NewPath("spec"), &s.Spec, &old.Spec
	r.Immutable(path.Child("selector"), spec.Selector, was.Selector)
	r.Immutable(path.Child("volumeClaimTemplates"), spec.VolumeClaimTemplates, was.VolumeClaimTemplates)
	r.Immutable(path.Child("serviceName"), spec.ServiceName, was.ServiceName)
	r.Immutable(path.Child("podManagementPolicy"), spec.PodManagementPolicy, was.PodManagementPolicy)
	return r.Errors
}

func validateStatefulSetStatus(_ context.Context, s, old *appsv1.StatefulSet) field.ErrorList {
	var r report.Report
	st, path := &s.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "readyReplicas", N: st.ReadyReplicas}, {Name: "currentReplicas", N: st.CurrentReplicas},
		{Name: "updatedReplicas", N: st.UpdatedReplicas}, {Name: "availableReplicas", N: st.AvailableReplicas},
	}
	r.NotNegative(path.Child("replicas"), int64(st.Replicas))
	r.Counts(path, counts...)
	r.NotNegative(path.Child("observedGeneration"), st.ObservedGeneration)
	notNegative(&r, path.Child("collisionCount"), st.CollisionCount)
	for _, c := range counts {
		if c.N > st.Replicas {
			r.Invalid(path.Child(c.Name), c.N, "cannot be greater than status.replicas")
		}
	}
	if st.AvailableReplicas > st.ReadyReplicas {
		r.Invalid(path.Child("availableReplicas"), st.AvailableReplicas, "cannot be greater than status.readyReplicas")
	}
	r.NotDecremented(path.Child("collisionCount"), st.CollisionCount, old.Status.CollisionCount)
	return r.Errors
}

func warnStatefulSet(_ context.Context, s, old *appsv1.StatefulSet) []string {
	warnings := warnTemplate("", &s.Spec.Template, old == nil, old != nil && s.Generation != old.Generation)
	for i := range s.Spec.VolumeClaimTemplates {
		path := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			path = path.Child("Spec")
		}
		warnings = append(warnings, podspec.WarnOfClaim(&s.Spec.VolumeClaimTemplates[i].Spec, path)...)
	}
	if limit := s.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical "+
			"revisions; a value >= 0 is recommended")
	}
	return warnings
}

func statefulSetCells(s *appsv1.StatefulSet, env resource.CellEnv) []any {
	names, images := column.Containers(s.Spec.Template.Spec.Containers)
	return []any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, wanted(s.Spec.Replicas)),
		env.Age(s.CreationTimestamp), names, images,
	}
}

func statefulSetScale() *resource.Scale {
	return scale(func(s *appsv1.StatefulSet) (**int32, int32, *metav1.LabelSelector) {
		return &s.Spec.Replicas, s.Status.Replicas, s.Spec.Selector
	})
}
