// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// localSubjectAccessReviewRow declares localsubjectaccessreviews.
func localSubjectAccessReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authorizationv1.LocalSubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1", Resource: "localsubjectaccessreviews", Kind: "LocalSubjectAccessReview", Namespaced: true,
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}
