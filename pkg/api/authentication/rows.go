// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication declares the reviews that say who somebody is; nothing of them is stored.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package authentication

import "keelson.dev/apiserver/resource"

// Deps answers the reviews. The rows of the zero value have nobody who answers them.
type Deps struct{ SelfSubjectReview, TokenReview *resource.Creator }

// Rows returns the rows of the group, in discovery order.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{
		selfSubjectReviewRow(deps.SelfSubjectReview),
		tokenReviewRow(deps.TokenReview),
	}
}
