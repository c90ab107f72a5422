// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"keelson.dev/apiserver/resource"
)

// clusterRoleRow declares clusterroles.
func clusterRoleRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.ClusterRoleList](resource.Kind[*rbacv1.ClusterRole]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole",
		StoredForms: olderClusterRoles(),

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateClusterRole,
		ValidateUpdate:           validateClusterRoleUpdate,
		ValidateName:             nameClusterRole,
		Hooks:                    escalationHooks[rbacv1.ClusterRole](check),
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	})
}
