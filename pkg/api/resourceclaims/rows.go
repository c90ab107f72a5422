// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaims declares the kinds of the group resource.k8s.io (dynamic resource
// allocation): resource claims, their templates, device classes, resource slices and rules that
// taint devices.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package resourceclaims

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/older"
)

// Guard checks whether users have the rights that some uses of claims need in addition to the right
// to write the claim.
type Guard interface {
	// CheckRequests returns an error if the user may not make these requests in a new claim or
	// template in the namespace.
	CheckRequests(ctx context.Context, namespace string, requests []resourcev1.DeviceRequest) field.ErrorList
	// CheckStatus returns an error if the user may not change the status of a claim from old to c.
	CheckStatus(ctx context.Context, c, old *resourcev1.ResourceClaim) field.ErrorList
}

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
// guard checks writes of claims and templates. It may be nil.
func Rows(guard Guard) []*resource.Row {
	return []*resource.Row{
		deviceClassRow(),
		resourceClaimRow(guard),
		resourceClaimTemplateRow(guard),
		resourceSliceRow(),
		older.StoredAs("v1beta2", deviceTaintRuleRow()),
	}
}
