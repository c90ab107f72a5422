// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// selfSubjectReviewRow declares selfsubjectreviews.
func selfSubjectReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authenticationv1.SelfSubjectReview]{
		Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews", Kind: "SelfSubjectReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}
