// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import "k8s.io/apimachinery/pkg/api/validation/path"

// The names of roles and bindings are free but for what a URL path cannot carry:
// "system:node" is one.

func nameRole(name string, prefix bool) []string { return path.ValidatePathSegmentName(name, prefix) }

func nameRoleBinding(name string, prefix bool) []string { return nameRole(name, prefix) }

func nameClusterRole(name string, prefix bool) []string { return nameRole(name, prefix) }

func nameClusterRoleBinding(name string, prefix bool) []string { return nameRole(name, prefix) }
