// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
)

// Expression reports why an expression of CEL does not compile.
func (r *Report) Expression(path *field.Path, expression string, err error) {
	var celErr *cel.Error
	if !errors.As(err, &celErr) {
		r.Add(field.InternalError(path, fmt.Errorf("unsupported error type: %w", err)))
		return
	}
	switch celErr.Type {
	case cel.ErrorTypeRequired:
		r.Required(path, celErr.Detail)
	case cel.ErrorTypeInvalid:
		r.Invalid(path, expression, celErr.Detail)
	case cel.ErrorTypeInternal:
		r.Add(field.InternalError(path, celErr))
	default:
		r.Add(field.InternalError(path, fmt.Errorf("unsupported error type: %w", err)))
	}
}
