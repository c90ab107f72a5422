// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IntOrPercent reports what is neither a number that is not negative nor a percentage.
func (r *Report) IntOrPercent(path *field.Path, value intstr.IntOrString) {
	if value.Type == intstr.String {
		r.Each(path, value, validation.IsValidPercent(value.StrVal))
		return
	}
	r.NotNegative(path, int64(value.IntValue()))
}

// AtMostAll reports a percentage above 100.
func (r *Report) AtMostAll(path *field.Path, value intstr.IntOrString) {
	if n, ok := percent(value); ok && n > 100 {
		r.Invalid(path, value, "must not be greater than 100%")
	}
}

// IsZero is true of 0 and of 0%.
func IsZero(value intstr.IntOrString) bool {
	if n, ok := percent(value); ok {
		return n == 0
	}
	return value.IntValue() == 0
}

func percent(value intstr.IntOrString) (int, bool) {
	if value.Type != intstr.String || len(validation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	return n, err == nil
}
