// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication declares the reviews that identify a user. They are never stored.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/unset"
)

// Deps has the functions that answer reviews. A server whose kind table is made from the zero value
// cannot answer reviews.
type Deps struct{ SelfSubjectReview, TokenReview *resource.Creator }

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{
		selfSubjectReviewRow(deps.SelfSubjectReview),
		tokenReviewRow(deps.TokenReview),
	}
}

// tokenReviewRow returns the row of the kind table for the resource tokenreviews.
func tokenReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authenticationv1.TokenReview]{
		Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews", Kind: "TokenReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}

// selfSubjectReviewRow returns the row of the kind table for the resource selfsubjectreviews.
func selfSubjectReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authenticationv1.SelfSubjectReview]{
		Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews", Kind: "SelfSubjectReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}

const tokenLifetimeSeconds int64 = 60 * 60

// DefaultTokenRequest sets the defaults of a request for a service account token.
func DefaultTokenRequest(r *authenticationv1.TokenRequest) {
	unset.Point(&r.Spec.ExpirationSeconds, tokenLifetimeSeconds)
}
