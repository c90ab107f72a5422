// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiextensions declares custom resource definitions.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"keelson.dev/apiserver/resource"
)

// Rows returns the rows of the group, in discovery order. hooks are those of definitions.
func Rows(hooks resource.Hooks[*apiextensionsv1.CustomResourceDefinition]) []*resource.Row {
	return []*resource.Row{
		customResourceDefinitionRow(hooks),
	}
}
