// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization declares the reviews that say what somebody may do; nothing of them is stored.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package authorization

import "keelson.dev/apiserver/resource"

// Deps answers the reviews. The rows of the zero value have nobody who answers them.
type Deps struct {
	LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview *resource.Creator
}

// Rows returns the rows of the group, in discovery order.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{
		localSubjectAccessReviewRow(deps.LocalSubjectAccessReview),
		selfSubjectAccessReviewRow(deps.SelfSubjectAccessReview),
		selfSubjectRulesReviewRow(deps.SelfSubjectRulesReview),
		subjectAccessReviewRow(deps.SubjectAccessReview),
	}
}
