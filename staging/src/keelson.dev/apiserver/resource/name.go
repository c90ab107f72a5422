// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// InternalName returns the name that Kubernetes' messages use for the Go type of a kind:
// "core.Pod", "apps.Deployment".
func InternalName(kind schema.GroupVersionKind) string {
	group, _, _ := strings.Cut(kind.Group, ".")
	if group == "" {
		group = "core"
	}
	return group + "." + kind.Kind
}
