// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// warnOfFormats tells of formats that are new in crd and that no value is checked against.
func warnOfFormats(_ context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) []string {
	found := unknownFormats(crd)
	if len(found) == 0 {
		return nil
	}
	if old != nil {
		for format := range unknownFormats(old) {
			delete(found, format)
		}
	}
	var out []string
	for _, format := range slices.Sorted(maps.Keys(found)) {
		out = append(out, fmt.Sprintf("unrecognized format %q", format))
	}
	return out
}

func unknownFormats(crd *apiextensionsv1.CustomResourceDefinition) map[string]bool {
	found := make(map[string]bool)
	for i := range crd.Spec.Versions {
		in := crd.Spec.Versions[i].Schema
		if in == nil {
			continue
		}
		var schema apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(in.DeepCopy(), &schema, nil); err != nil {
			continue // which validation tells
		}
		validation.SchemaHas(schema.OpenAPIV3Schema, func(s *apiextensions.JSONSchemaProps) bool {
			typed := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, format := range schemavalidation.GetUnrecognizedFormats(typed, environment.DefaultCompatibilityVersion()) {
				found[format] = true
			}
			return false
		})
	}
	return found
}
