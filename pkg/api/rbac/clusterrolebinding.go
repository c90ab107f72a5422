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

// clusterRoleBindingRow declares clusterrolebindings.
func clusterRoleBindingRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.ClusterRoleBindingList](resource.Kind[*rbacv1.ClusterRoleBinding]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings", Kind: "ClusterRoleBinding",

		Default:                  defaultClusterRoleBinding,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateClusterRoleBinding,
		ValidateUpdate:           validateClusterRoleBindingUpdate,
		ValidateName:             nameClusterRoleBinding,
		Hooks:                    escalationHooks[rbacv1.ClusterRoleBinding](check),
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,

		StoredForms: olderClusterRoleBindings(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Role", Type: "string", Description: rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"]},
			column.Age(),
			{Name: "Users", Type: "string", Description: "Users in the clusterRoleBinding", Priority: column.Wide},
			{Name: "Groups", Type: "string", Description: "Groups in the clusterRoleBinding", Priority: column.Wide},
			{Name: "ServiceAccounts", Type: "string", Description: "ServiceAccounts in the clusterRoleBinding", Priority: column.Wide},
		},
		Cells: clusterRoleBindingCells,
	})
}
