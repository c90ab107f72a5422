// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type timeKey struct{}

// WithTime returns a context with the time of the request. The functions in the kind table take the
// time from it, because they may not read a clock.
func WithTime(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, timeKey{}, metav1.NewTime(t))
}

// Time returns the time of the request, or the zero time if ctx has none.
func Time(ctx context.Context) metav1.Time {
	t, _ := ctx.Value(timeKey{}).(metav1.Time)
	return t
}
