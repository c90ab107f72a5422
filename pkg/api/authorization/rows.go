// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization declares the reviews that check what a user may do. They are never
// stored.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// Deps has the functions that answer reviews. A server whose kind table is made from the zero value
// cannot answer reviews.
type Deps struct {
	LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview *resource.Creator
}

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{
		localSubjectAccessReviewRow(deps.LocalSubjectAccessReview),
		selfSubjectAccessReviewRow(deps.SelfSubjectAccessReview),
		selfSubjectRulesReviewRow(deps.SelfSubjectRulesReview),
		subjectAccessReviewRow(deps.SubjectAccessReview),
	}
}

// subjectAccessReviewRow returns the row of the kind table for the resource subjectaccessreviews.
func subjectAccessReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authorizationv1.SubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews", Kind: "SubjectAccessReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}

// localSubjectAccessReviewRow returns the row of the kind table for the resource
// localsubjectaccessreviews.
func localSubjectAccessReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authorizationv1.LocalSubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1", Resource: "localsubjectaccessreviews",
		Kind: "LocalSubjectAccessReview", Namespaced: true,
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}

// selfSubjectAccessReviewRow returns the row of the kind table for the resource
// selfsubjectaccessreviews.
func selfSubjectAccessReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authorizationv1.SelfSubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews", Kind: "SelfSubjectAccessReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}

// selfSubjectRulesReviewRow returns the row of the kind table for the resource
// selfsubjectrulesreviews.
func selfSubjectRulesReviewRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*authorizationv1.SelfSubjectRulesReview]{
		Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectrulesreviews", Kind: "SelfSubjectRulesReview",
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}
