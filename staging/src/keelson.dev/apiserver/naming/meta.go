// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Suspect is an object for apimachinery to judge the metadata of: its labels and
// annotations are there only if there is something to say about them.
type Suspect struct{ metav1.Object }

// GetLabels returns no labels that are well formed.
func (s Suspect) GetLabels() map[string]string {
	labels := s.Object.GetLabels()
	if LabelsOK(labels) {
		return nil
	}
	return labels
}

// GetAnnotations returns no annotations that are well formed.
func (s Suspect) GetAnnotations() map[string]string {
	annotations := s.Object.GetAnnotations()
	if AnnotationsOK(annotations) {
		return nil
	}
	return annotations
}

// LabelsOK reports whether labels are ones that no object is refused for.
func LabelsOK(labels map[string]string) bool {
	for k, v := range labels {
		if len(IsQualifiedName(k)) > 0 || len(IsValidLabelValue(v)) > 0 {
			return false
		}
	}
	return true
}

// AnnotationsOK reports whether annotations are ones that no object is refused for.
func AnnotationsOK(annotations map[string]string) bool {
	for k := range annotations {
		if len(IsQualifiedName(strings.ToLower(k))) > 0 {
			return false
		}
	}
	return apivalidation.ValidateAnnotationsSize(annotations) == nil
}
