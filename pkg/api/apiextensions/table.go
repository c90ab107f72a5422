// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// definitionColumns returns the columns of the table that kubectl prints. Kubernetes has them since
// 1.37.
func definitionColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		column.Name(),
		{Name: "Scope", Type: "string", Description: "Cluster/Namespaced"},
		{Name: "Versions", Type: "string", Description: "Served versions"},
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
		{Name: "Group", Type: "string", Description: "API group", Priority: column.Wide},
		{Name: "Kind", Type: "string", Description: "CustomResource kind", Priority: column.Wide},
		{Name: "ShortNames", Type: "string", Description: "Short names", Priority: column.Wide},
		{Name: "Established", Type: "boolean", Description: "Established status", Priority: column.Wide},
	}
}

// definitionCells returns the cells of a definition in the table.
func definitionCells(crd *apiextensionsv1.CustomResourceDefinition, _ resource.CellEnv) []any {
	var versions []string
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions)
	return []any{
		crd.Name, string(crd.Spec.Scope), strings.Join(versions, ","),
		crd.CreationTimestamp.UTC().Format(time.RFC3339), crd.Spec.Group, crd.Spec.Names.Kind,
		strings.Join(crd.Spec.Names.ShortNames, ","), apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established),
	}
}
