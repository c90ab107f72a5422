// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// resourceClaimTemplateRow declares resourceclaimtemplates.
func resourceClaimTemplateRow() *resource.Row {
	return resource.Of[resourcev1.ResourceClaimTemplateList](resource.Kind[*resourcev1.ResourceClaimTemplate]{
		Group: "resource.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, templateVersions()...), Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate", Namespaced: true,

		Default:                  defaultResourceClaimTemplate,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateTemplate,
		ValidateUpdate:           validateTemplateUpdate,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			column.Age(),
		},
		Cells: resourceClaimTemplateCells,
	})
}
