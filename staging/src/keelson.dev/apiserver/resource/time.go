// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type timeKey struct{}

// WithTime returns a context that carries the time of the request, so that
// strategies that stamp a transition stay pure.
func WithTime(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, timeKey{}, metav1.NewTime(t))
}

// Time is the time of the request, or zero when the context has none.
func Time(ctx context.Context) metav1.Time {
	t, _ := ctx.Value(timeKey{}).(metav1.Time)
	return t
}
