// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// tokenReviewRow declares tokenreviews.
func tokenReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authenticationv1.TokenReview]{
		Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews", Kind: "TokenReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}
