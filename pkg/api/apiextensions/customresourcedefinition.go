// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiextensions declares custom resource definitions.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
// hooks are called when definitions are written.
func Rows(hooks resource.Hooks[*apiextensionsv1.CustomResourceDefinition]) []*resource.Row {
	return []*resource.Row{
		customResourceDefinitionRow(hooks),
	}
}

// customResourceDefinitionRow returns the row of the kind table for the resource
// customresourcedefinitions.
func customResourceDefinitionRow(hooks resource.Hooks[*apiextensionsv1.CustomResourceDefinition]) *resource.Row {
	return resource.Of[apiextensionsv1.CustomResourceDefinitionList](
		resource.Kind[*apiextensionsv1.CustomResourceDefinition]{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
			Kind:       "CustomResourceDefinition",
			ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
			StoragePrefix: "apiextensions.k8s.io/customresourcedefinitions",

			Codec:    codec{},
			StoredAs: apiextensionsv1beta1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),

			Hooks:         hooks,
			Default:       completeCustomResourceDefinition,
			PrepareCreate: prepareCustomResourceDefinitionCreate,
			PrepareUpdate: prepareCustomResourceDefinitionUpdate,
			ResetFields:   []string{"status"},
			ValidateName:  anyName,
			Warnings:      warnOfFormats,

			// If a delete names no policy for dependents, the garbage collector has nothing to do:
			// a definition has a finalizer that keeps it until its custom resources are deleted.
			DefaultGarbageCollection: "Unsupported",
			AnyFinalizer:             true,
			Validate:                 validateCustomResourceDefinition,
			ValidateUpdate:           validateCustomResourceDefinitionUpdate,

			Columns: definitionColumns(),
			Cells:   definitionCells,

			Subresources: []resource.Sub[*apiextensionsv1.CustomResourceDefinition]{
				{Subresource: strategy.View("status", "spec").WithoutTable(),
					PrepareUpdate: prepareCustomResourceDefinitionStatus, ValidateUpdate: validateCustomResourceDefinitionStatus},
			},
		})
}

const servicePort int32 = 443

// completeCustomResourceDefinition sets the defaults of a new or updated definition and
// normalizes its values.
func completeCustomResourceDefinition(crd *apiextensionsv1.CustomResourceDefinition) {
	defaultCustomResourceDefinition(crd)
	normalizeValues(crd)
}

func defaultCustomResourceDefinition(crd *apiextensionsv1.CustomResourceDefinition) {
	names := &crd.Spec.Names
	unset.Fill(&names.Singular, strings.ToLower(names.Kind))
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	unset.Point(&crd.Spec.Conversion, apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter})
	if w := crd.Spec.Conversion.Webhook; w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil {
		unset.Point(&w.ClientConfig.Service.Port, servicePort)
	}
	if len(crd.Status.StoredVersions) == 0 {
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
			}
		}
	}
}

func prepareCustomResourceDefinitionCreate(_ context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	crd.Generation = 1
	recordStorageVersion(crd)
}

func prepareCustomResourceDefinitionUpdate(_ context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) {
	crd.Status = *old.Status.DeepCopy()
	strategy.Count(crd, old, equality.Semantic.DeepEqual(crd.Spec, old.Spec))
	recordStorageVersion(crd)
}

// recordStorageVersion adds the name of the version with storage: true to status.storedVersions,
// because from now on objects may be stored in this version.
func recordStorageVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Storage
	})
	if i >= 0 && !slices.Contains(crd.Status.StoredVersions, crd.Spec.Versions[i].Name) {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, crd.Spec.Versions[i].Name)
	}
}

// prepareCustomResourceDefinitionStatus keeps the old spec. As in Kubernetes, an update of the
// status can change metadata.
func prepareCustomResourceDefinitionStatus(_ context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec = old.Spec
}

// normalizeValues rewrites the JSON values in the schemas of a CustomResourceDefinition (defaults,
// enums, examples) as they look after a conversion to Kubernetes' unversioned type and back:
// members are sorted, and numbers and strings are written in one way. If a conversion fails, the
// definition stays unchanged, and validation reports the error.
func normalizeValues(crd *apiextensionsv1.CustomResourceDefinition) {
	var hub apiextensions.CustomResourceDefinition
	// The results of the conversions share memory with their input and between versions, so the
	// input and the final result are copied.
	if apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		crd.DeepCopy(), &hub, nil) != nil {
		return
	}
	var out apiextensionsv1.CustomResourceDefinition
	if apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(&hub, &out,
		nil) != nil {
		return
	}
	out.TypeMeta = crd.TypeMeta
	out.DeepCopyInto(crd)
}

// The Kubernetes library that applies schemas also validates definitions, including their CEL
// expressions. It validates the unversioned type.

func validateCustomResourceDefinition(ctx context.Context,
	crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return validateWith(func(in ...*apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateCustomResourceDefinition(ctx, in[0])
	}, crd)
}

func validateCustomResourceDefinitionUpdate(ctx context.Context, crd,
	old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return validateWith(func(in ...*apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateCustomResourceDefinitionUpdate(ctx, in[0], in[1])
	}, crd, old)
}

func validateCustomResourceDefinitionStatus(ctx context.Context, crd,
	old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return validateWith(func(in ...*apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, in[0], in[1])
	}, withoutSchemas(crd), withoutSchemas(old))
}

// withoutSchemas returns a copy of crd without schemas, because the validation of a status does not
// need them.
func withoutSchemas(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	out := *crd
	out.Spec.Versions = slices.Clone(crd.Spec.Versions)
	for i := range out.Spec.Versions {
		out.Spec.Versions[i].Schema = nil
	}
	return &out
}

func validateWith(by func(...*apiextensions.CustomResourceDefinition) field.ErrorList,
	crds ...*apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	in := make([]*apiextensions.CustomResourceDefinition, len(crds))
	for i, crd := range crds {
		in[i] = &apiextensions.CustomResourceDefinition{}
		// The conversion moves fields that all versions share to the top of the spec. Its result
		// may share memory with its input, so the input is a copy.
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
			crd.DeepCopy(), in[i], nil); err != nil {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert %s: %w", crd.Name, err))}
		}
	}
	errs, ok := attempt(by, in)
	if !ok {
		in[0].Spec.SelectableFields = nil
		for i := range in[0].Spec.Versions {
			in[0].Spec.Versions[i].SelectableFields = nil
		}
		errs = by(in...)
	}
	return slices.DeleteFunc(errs, checkedForAllKinds)
}

// attempt calls the function by, which validates a CustomResourceDefinition. If this function
// panics, attempt returns false. The library's validation panics if the path of a selectable field
// leads through a schema that is missing or that it has already rejected.
func attempt(by func(...*apiextensions.CustomResourceDefinition) field.ErrorList,
	in []*apiextensions.CustomResourceDefinition) (errs field.ErrorList, ok bool) {
	defer func() {
		if recover() != nil {
			errs, ok = nil, false
		}
	}()
	return by(in...), true
}

// checkedForAllKinds reports whether err is about metadata that the server checks for objects of
// every kind, so that the error would be reported twice. Two rules about metadata are special to
// definitions and are not among them: the name follows from the plural name and the group, and a
// CustomResourceDefinition in one of Kubernetes' own groups needs an approval annotation.
func checkedForAllKinds(err *field.Error) bool {
	if (err.Field == "metadata.name" || err.Field == "metadata.generateName") &&
		err.Type == field.ErrorTypeInvalid || strings.HasPrefix(err.Field, "metadata.annotations[") {
		return false
	}
	return err.Field == "metadata" || strings.HasPrefix(err.Field, "metadata.")
}

// anyName accepts any name, because the library's validation checks the name of a
// CustomResourceDefinition.
func anyName(string, bool) []string { return nil }

// warnOfFormats warns about formats in the schemas of crd that are unknown to the server, so that
// it does not check values against them. It does not warn about formats that old has too.
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
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
			in.DeepCopy(), &schema, nil); err != nil {
			continue // validation reports the error
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
