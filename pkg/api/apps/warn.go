// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

// warnTemplate looks at a template when it is new, or when changed is true.
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

func warnDeployment(_ context.Context, d, old *appsv1.Deployment) []string {
	return warnTemplate(d.Name, &d.Spec.Template, old == nil, old != nil && d.Generation != old.Generation)
}

func warnReplicaSet(_ context.Context, rs, old *appsv1.ReplicaSet) []string {
	return warnTemplate(rs.Name, &rs.Spec.Template, old == nil, old != nil && rs.Generation != old.Generation)
}

func warnDaemonSet(_ context.Context, d, old *appsv1.DaemonSet) []string {
	return warnTemplate("", &d.Spec.Template, old == nil, old != nil && templateGeneration(d) != templateGeneration(old))
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
		warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}
