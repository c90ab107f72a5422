// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Suspect wraps an object for apimachinery's validation of metadata. It hides labels and
// annotations if they are valid, because validating them again is slow.
type Suspect struct{ metav1.Object }

// GetLabels returns nil if all labels are valid.
func (s Suspect) GetLabels() map[string]string {
	labels := s.Object.GetLabels()
	if LabelsOK(labels) {
		return nil
	}
	return labels
}

// GetAnnotations returns nil if all annotations are valid.
func (s Suspect) GetAnnotations() map[string]string {
	annotations := s.Object.GetAnnotations()
	if AnnotationsOK(annotations) {
		return nil
	}
	return annotations
}

// LabelsOK reports whether labels are certainly valid. If it returns false, apimachinery has to
// validate them.
func LabelsOK(labels map[string]string) bool {
	for k, v := range labels {
		if len(IsQualifiedName(k)) > 0 || len(IsValidLabelValue(v)) > 0 {
			return false
		}
	}
	return true
}

// AnnotationsOK reports whether annotations are certainly valid. If it returns false, apimachinery
// has to validate them.
func AnnotationsOK(annotations map[string]string) bool {
	for k := range annotations {
		if len(IsQualifiedName(strings.ToLower(k))) > 0 {
			return false
		}
	}
	return apivalidation.ValidateAnnotationsSize(annotations) == nil
}
