// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import "context"

type unprivilegedKey struct{}

// WithoutPrivileged returns a context in which no specification may have containers that are
// privileged, or processes of a Windows host: what an API server without --allow-privileged wants.
func WithoutPrivileged(ctx context.Context) context.Context {
	return context.WithValue(ctx, unprivilegedKey{}, true)
}

func mayBePrivileged(ctx context.Context) bool { return ctx.Value(unprivilegedKey{}) == nil }
