// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules of a schema, its CEL expressions among them, are those of the
// library that also applies the schema. It judges the type without a version.

func validateCustomResourceDefinition(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return judge(func(in ...*apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateCustomResourceDefinition(ctx, in[0])
	}, crd)
}

func validateCustomResourceDefinitionUpdate(ctx context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return judge(func(in ...*apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateCustomResourceDefinitionUpdate(ctx, in[0], in[1])
	}, crd, old)
}

func validateCustomResourceDefinitionStatus(_ context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return judge(func(in ...*apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateUpdateCustomResourceDefinitionStatus(in[0], in[1])
	}, withoutSchemas(crd), withoutSchemas(old))
}

// withoutSchemas is crd without its bulk, which a status has nothing to do with.
func withoutSchemas(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	out := *crd
	out.Spec.Versions = slices.Clone(crd.Spec.Versions)
	for i := range out.Spec.Versions {
		out.Spec.Versions[i].Schema = nil
	}
	return &out
}

func judge(by func(...*apiextensions.CustomResourceDefinition) field.ErrorList, crds ...*apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	in := make([]*apiextensions.CustomResourceDefinition, len(crds))
	for i, crd := range crds {
		in[i] = &apiextensions.CustomResourceDefinition{}
		// The conversion moves what all versions share and may alias its input.
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), in[i], nil); err != nil {
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

// attempt reports false where the library stumbles: it walks schemas by the paths
// of selectable fields also where it has found that they cannot be walked, or that
// they say nothing at all.
func attempt(by func(...*apiextensions.CustomResourceDefinition) field.ErrorList, in []*apiextensions.CustomResourceDefinition) (errs field.ErrorList, ok bool) {
	defer func() {
		if recover() != nil {
			errs, ok = nil, false
		}
	}()
	return by(in...), true
}

// checkedForAllKinds is true of findings that the server has of the metadata of
// every kind: all but that a definition's name follows from its other names, and
// that one in a group of Kubernetes' own says who approved it.
func checkedForAllKinds(err *field.Error) bool {
	if (err.Field == "metadata.name" || err.Field == "metadata.generateName") && err.Type == field.ErrorTypeInvalid || strings.HasPrefix(err.Field, "metadata.annotations[") {
		return false
	}
	return err.Field == "metadata" || strings.HasPrefix(err.Field, "metadata.")
}

// anyName leaves the name to the other rules.
func anyName(string, bool) []string { return nil }
