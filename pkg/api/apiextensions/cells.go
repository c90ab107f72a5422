// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func customResourceDefinitionCells(crd *apiextensionsv1.CustomResourceDefinition, _ resource.CellEnv) []any {
	return []any{crd.Name, column.Time(crd.CreationTimestamp)}
}
