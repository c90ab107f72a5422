// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// selfSubjectRulesReviewRow declares selfsubjectrulesreviews.
func selfSubjectRulesReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authorizationv1.SelfSubjectRulesReview]{
		Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectrulesreviews", Kind: "SelfSubjectRulesReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}
