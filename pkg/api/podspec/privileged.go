// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Policy is what a server allows in specifications of pods. The zero value allows everything.
type Policy struct {
	// NoPrivileged rejects privileged containers, and host processes on Windows: what an API server
	// without --allow-privileged does.
	NoPrivileged bool
}

// Validate returns rule such that it checks specifications of pods against p.
func Validate[T any](p Policy, rule func(ctx context.Context, obj *T) field.ErrorList) func(ctx context.Context, obj *T) field.ErrorList {
	if !p.NoPrivileged {
		return rule
	}
	return func(ctx context.Context, obj *T) field.ErrorList { return rule(withoutPrivileged(ctx), obj) }
}

// ValidateUpdate returns rule such that it checks specifications of pods against p.
func ValidateUpdate[T any](p Policy, rule func(ctx context.Context, obj, old *T) field.ErrorList) func(ctx context.Context, obj, old *T) field.ErrorList {
	if !p.NoPrivileged {
		return rule
	}
	return func(ctx context.Context, obj, old *T) field.ErrorList { return rule(withoutPrivileged(ctx), obj, old) }
}

type unprivilegedKey struct{}

func withoutPrivileged(ctx context.Context) context.Context {
	return context.WithValue(ctx, unprivilegedKey{}, true)
}

func mayBePrivileged(ctx context.Context) bool { return ctx.Value(unprivilegedKey{}) == nil }
