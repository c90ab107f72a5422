// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

// ValidateTemplate reports everything wrong with the template of pods.
func ValidateTemplate(ctx context.Context, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var r report.Report
	r.Labels(path.Child("labels"), t.Labels)
	r.Annotations(path.Child("annotations"), t.Annotations)
	r.Add(ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"))...)
	r.Add(ValidateSpec(ctx, &t.Spec, nil, path.Child("spec"))...)
	r.Add(ValidateProfiles(t.Annotations, &t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		r.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
	return r.Errors
}
