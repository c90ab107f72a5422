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
	"keelson.dev/keelson/pkg/api/strategy"
)

// resourceClaimRow declares resourceclaims.
func resourceClaimRow(guard Guard) *resource.Row {
	parts := strategy.Parts[resourcev1.ResourceClaim, resourcev1.ResourceClaimSpec, resourcev1.ResourceClaimStatus](func(o *resourcev1.ResourceClaim) (*resourcev1.ResourceClaimSpec, *resourcev1.ResourceClaimStatus) {
		return &o.Spec, &o.Status
	})
	validate, validateStatus := validateClaim, validateClaimStatus
	if guard != nil {
		validate = func(ctx context.Context, c *resourcev1.ResourceClaim) field.ErrorList {
			return append(guard.CheckRequests(ctx, c.Namespace, c.Spec.Devices.Requests), validateClaim(ctx, c)...)
		}
		validateStatus = func(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList {
			return append(guard.CheckStatus(ctx, c, old), validateClaimStatus(ctx, c, old)...)
		}
	}
	return resource.Of[resourcev1.ResourceClaimList](resource.Kind[*resourcev1.ResourceClaim]{
		Group: "resource.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, claimVersions()...), Resource: "resourceclaims", Kind: "ResourceClaim", Namespaced: true,

		Default:                  defaultResourceClaim,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		PrepareCreate:            parts.ClearStatus,
		PrepareUpdate:            parts.KeepStatus,
		Validate:                 validate,
		ValidateUpdate:           validateClaimUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "State", Type: "string", Description: "A summary of the current state (allocated, pending, reserved, etc.)."},
			column.Age(),
		},
		Cells: resourceClaimCells,

		Subresources: []resource.Sub[*resourcev1.ResourceClaim]{
			{Subresource: strategy.View("status", "spec", "metadata").WithoutTable(), PrepareUpdate: func(ctx context.Context, c, old *resourcev1.ResourceClaim) {
				parts.KeepSpecAndMeta(ctx, c, old)
				dropFreed(c, old)
			}, ValidateUpdate: validateStatus},
		},
	})
}
