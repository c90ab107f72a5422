// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// limitRangeRow declares limitranges.
func limitRangeRow() *resource.Row {
	return resource.Of[corev1.LimitRangeList](resource.Kind[*corev1.LimitRange]{
		Group: "", Version: "v1", Resource: "limitranges", Kind: "LimitRange", Namespaced: true,
		ShortNames: []string{"limits"},

		Default:                  defaultLimitRange,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		PrepareCreate:            prepareLimitRangeCreate,
		Validate:                 validateLimitRange,
		ValidateUpdate:           validateLimitRangeUpdate,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	})
}
