// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// gone returns a function for controllertest.Eventually that reports whether an object is deleted. get
// is the method Get of a typed client.
func gone[T any](get func(context.Context, string, metav1.GetOptions) (T, error),
	name string) func(context.Context) (any, bool) {
	return func(ctx context.Context) (any, bool) {
		got, err := get(ctx, name, metav1.GetOptions{})
		return got, apierrors.IsNotFound(err)
	}
}
