// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// withoutPrivileged has the rules of rows refuse privileged containers, in pods and in templates of them.
func withoutPrivileged(rows []*resource.Row) {
	type update = func(ctx context.Context, obj, old resource.Object) field.ErrorList
	guard := func(rule update) update {
		if rule == nil {
			return nil
		}
		return func(ctx context.Context, obj, old resource.Object) field.ErrorList {
			return rule(podspec.WithoutPrivileged(ctx), obj, old)
		}
	}
	for _, row := range rows {
		if validate := row.Validate; validate != nil {
			row.Validate = func(ctx context.Context, obj resource.Object) field.ErrorList {
				return validate(podspec.WithoutPrivileged(ctx), obj)
			}
		}
		row.ValidateUpdate = guard(row.ValidateUpdate)
		for i := range row.Subresources {
			row.Subresources[i].ValidateUpdate = guard(row.Subresources[i].ValidateUpdate)
		}
	}
}
