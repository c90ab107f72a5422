// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TemplateMeta judges the metadata that objects are made with: labels and
// annotations, and nothing else.
func (r *Report) TemplateMeta(path *field.Path, meta *metav1.ObjectMeta) {
	r.Annotations(path.Child("annotations"), meta.Annotations)
	r.Labels(path.Child("labels"), meta.Labels)
	v := reflect.ValueOf(*meta)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "Annotations" && name != "Labels" && !v.Field(i).IsZero() {
			r.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set")
		}
	}
}
