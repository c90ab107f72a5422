// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"keelson.dev/apiserver/resource"
)

// clusterRoleBindingRow declares clusterrolebindings.
func clusterRoleBindingRow() *resource.Row {
	return resource.Kind[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings", Kind: "ClusterRoleBinding",

		Default:                  defaultClusterRoleBinding,
		ValidateName:             path.ValidatePathSegmentName,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Row()
}
