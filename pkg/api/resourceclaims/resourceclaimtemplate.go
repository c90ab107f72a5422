// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// resourceClaimTemplateRow declares resourceclaimtemplates.
func resourceClaimTemplateRow(guard Guard) *resource.Row {
	validate := validateTemplate
	if guard != nil {
		validate = func(ctx context.Context, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return append(guard.CheckRequests(ctx, t.Namespace, t.Spec.Spec.Devices.Requests), validateTemplate(ctx, t)...)
		}
	}
	return resource.Of[resourcev1.ResourceClaimTemplateList](resource.Kind[*resourcev1.ResourceClaimTemplate]{
		Group: "resource.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, templateVersions()...), Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate", Namespaced: true,

		Default:                  defaultResourceClaimTemplate,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validate,
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
