// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// metaHere is no type of a finding that anybody sees.
const metaHere field.ErrorType = "metadata's findings"

// MetaHere holds a place among the findings of Validate, or of ValidateUpdate: those of
// metadata, or the last that MetaRules make of it, come there. Without it they come before all.
func MetaHere() *field.Error { return &field.Error{Type: metaHere} }

// PlaceMeta puts the findings of metadata where found has a place for them.
func PlaceMeta(found, meta field.ErrorList) field.ErrorList {
	i := slices.IndexFunc(found, func(err *field.Error) bool { return err.Type == metaHere })
	if i < 0 {
		return append(slices.Clip(meta), found...)
	}
	return slices.Concat(found[:i], meta, found[i+1:])
}
