// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateStatefulSet(ctx context.Context, s *appsv1.StatefulSet) field.ErrorList {
	return validateStatefulSetSpec(ctx, &s.Spec, true)
}

// validateStatefulSetSpec judges what an update cannot change only when fixed is true.
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
		retain, remove := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		report.OneOf(&r, at.Child("whenDeleted"), p.WhenDeleted, retain, remove)
		report.OneOf(&r, at.Child("whenScaled"), p.WhenScaled, retain, remove)
	}
	if fixed {
		for i := range spec.VolumeClaimTemplates {
			r.Add(podspec.ValidateClaimSpec(&spec.VolumeClaimTemplates[i].Spec, path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
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
			r.Invalid(at, rolling, fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType))
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

// checkStatefulTemplate judges the template as the pods will have it: with the
// volumes of the claims, and without the names that the set gives them.
func checkStatefulTemplate(ctx context.Context, r *report.Report, spec *appsv1.StatefulSetSpec, selector labels.Selector, path *field.Path) {
	if selector != nil {
		t := spec.Template.DeepCopy()
		if !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
			r.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
		}
		t.Spec.Subdomain, t.Spec.Hostname = "", ""
		t.Spec.Volumes = withClaims(t.Spec.Volumes, spec.VolumeClaimTemplates)
		r.Add(podspec.ValidateTemplate(ctx, t, path)...)
		// Kubernetes judges the metadata once more, and clients see both causes.
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
	r := report.Report{Errors: validateStatefulSetSpec(ctx, &s.Spec, false)}
	rest, was := s.Spec, &old.Spec
	rest.Replicas, rest.Template, rest.UpdateStrategy = was.Replicas, was.Template, was.UpdateStrategy
	rest.MinReadySeconds, rest.Ordinals, rest.RevisionHistoryLimit = was.MinReadySeconds, was.Ordinals, was.RevisionHistoryLimit
	rest.PersistentVolumeClaimRetentionPolicy = was.PersistentVolumeClaimRetentionPolicy
	if !equal.Values(rest, *was) {
		r.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")
	}
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
