// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// roleBindingRow declares rolebindings.
func roleBindingRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.RoleBindingList](resource.Kind[*rbacv1.RoleBinding]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings", Kind: "RoleBinding", Namespaced: true,

		Default:                  defaultRoleBinding,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateRoleBinding,
		ValidateUpdate:           validateRoleBindingUpdate,
		ValidateName:             nameRoleBinding,
		Hooks:                    escalationHooks[rbacv1.RoleBinding](check),
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,

		StoredForms: olderRoleBindings(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Role", Type: "string", Description: rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"]},
			column.Age(),
			{Name: "Users", Type: "string", Description: "Users in the roleBinding", Priority: column.Wide},
			{Name: "Groups", Type: "string", Description: "Groups in the roleBinding", Priority: column.Wide},
			{Name: "ServiceAccounts", Type: "string", Description: "ServiceAccounts in the roleBinding", Priority: column.Wide},
		},
		Cells: roleBindingCells,
	})
}
