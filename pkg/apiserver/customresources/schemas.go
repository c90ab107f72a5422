// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// schemas are the schemas of a CustomResourceDefinition, by version.
type schemas struct {
	group, kind string
	// preserve is true for definitions with spec.preserveUnknownFields, from before structural
	// schemas. Unknown fields of their objects are kept.
	preserve   bool
	structural map[string]*schema.Structural
	versions   map[string]*versionSchema
}

// versionSchema is the schema of one version. Its validators are created when they are first
// needed.
type versionSchema struct {
	props      *apiextensions.JSONSchemaProps // nil if the version has no schema
	structural *schema.Structural
	status     bool // whether the version has a status subresource

	once      sync.Once
	err       error
	object    validation.SchemaValidator
	statusOf  validation.SchemaValidator
	rulesOnce sync.Once
	rules     *cel.Validator
}

// newSchemas converts the schemas of crd.
func newSchemas(crd *apiextensionsv1.CustomResourceDefinition) (*schemas, error) {
	s := &schemas{
		group: crd.Spec.Group, kind: crd.Status.AcceptedNames.Kind, preserve: crd.Spec.PreserveUnknownFields,
		structural: make(map[string]*schema.Structural, len(crd.Spec.Versions)),
		versions:   make(map[string]*versionSchema, len(crd.Spec.Versions)),
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		vs := &versionSchema{status: v.Subresources != nil && v.Subresources.Status != nil}
		s.versions[v.Name] = vs
		if v.Schema == nil {
			continue
		}
		props, structural, err := structuralOf(v.Schema)
		if err != nil && !s.preserve {
			return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		if !s.preserve {
			if err := defaulting.PruneDefaults(structural); err != nil {
				return nil, fmt.Errorf("defaults of version %s: %w", v.Name, err)
			}
		}
		vs.props, vs.structural = props, structural
		s.structural[v.Name] = structural
	}
	return s, nil
}

// structuralOf converts a schema to both forms that the library needs. The caller may modify the
// results.
func structuralOf(in *apiextensionsv1.CustomResourceValidation) (*apiextensions.JSONSchemaProps,
	*schema.Structural, error) {
	var out apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		in.DeepCopy(), &out, nil); err != nil {
		return nil, nil, err
	}
	if out.OpenAPIV3Schema == nil {
		return nil, nil, nil
	}
	structural, err := schema.NewStructural(out.OpenAPIV3Schema)
	if err != nil {
		return out.OpenAPIV3Schema, nil, err
	}
	return out.OpenAPIV3Schema, structural.DeepCopy(), nil // a copy, because both forms would otherwise share defaults
}

// validators returns the validators of objects and of their field status.
func (v *versionSchema) validators() (object, status validation.SchemaValidator, err error) {
	v.once.Do(func() {
		if v.object, _, v.err = validation.NewSchemaValidator(v.props); v.err != nil || !v.status || v.props == nil {
			return
		}
		if props, ok := v.props.Properties["status"]; ok {
			v.statusOf, _, v.err = validation.NewSchemaValidator(&props)
		}
	})
	return v.object, v.statusOf, v.err
}

// ruleValidator returns the validator for x-kubernetes-validations, or nil if the schema has none.
func (v *versionSchema) ruleValidator() *cel.Validator {
	v.rulesOnce.Do(func() {
		if v.structural != nil {
			v.rules = cel.NewValidator(v.structural, true, celconfig.PerCallLimit)
		}
	})
	return v.rules
}
