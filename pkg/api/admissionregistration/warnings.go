// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// staticSuffix ends the names of what a server reads from its own files.
const staticSuffix = ".static.k8s.io"

// warnStatic warns of names that are kept for what no client writes.
func warnStatic[T any](_ context.Context, obj, _ *T) []string {
	if !strings.HasSuffix(any(obj).(metav1.Object).GetName(), staticSuffix) {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix)}
}
