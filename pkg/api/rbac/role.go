// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"keelson.dev/apiserver/resource"
)

// roleRow declares roles.
func roleRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.RoleList](resource.Kind[*rbacv1.Role]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles", Kind: "Role", Namespaced: true,
		StoredForms: olderRoles(),

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateRole,
		ValidateUpdate:           validateRoleUpdate,
		ValidateName:             nameRole,
		Hooks:                    escalationHooks[rbacv1.Role](check),
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	})
}
