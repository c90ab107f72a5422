// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"keelson.dev/apiserver/resource"
)

// roleBindingRow declares rolebindings.
func roleBindingRow() *resource.Row {
	return resource.Kind[rbacv1.RoleBinding, rbacv1.RoleBindingList]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings", Kind: "RoleBinding", Namespaced: true,

		Default:                  defaultRoleBinding,
		ValidateName:             path.ValidatePathSegmentName,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Row()
}
