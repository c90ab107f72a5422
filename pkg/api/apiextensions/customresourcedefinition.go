// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// customResourceDefinitionRow declares customresourcedefinitions.
func customResourceDefinitionRow(hooks resource.Hooks[*apiextensionsv1.CustomResourceDefinition]) *resource.Row {
	return resource.Of[apiextensionsv1.CustomResourceDefinitionList](resource.Kind[*apiextensionsv1.CustomResourceDefinition]{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition",
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

		// Its objects go with a definition, and it waits for them anyway.
		DefaultGarbageCollection: "Unsupported",
		AnyFinalizer:             true,
		Validate:                 validateCustomResourceDefinition,
		ValidateUpdate:           validateCustomResourceDefinitionUpdate,

		Subresources: []resource.Sub[*apiextensionsv1.CustomResourceDefinition]{
			{Subresource: strategy.View("status", "spec").WithoutTable(), PrepareUpdate: prepareCustomResourceDefinitionStatus, ValidateUpdate: validateCustomResourceDefinitionStatus},
		},
	})
}
