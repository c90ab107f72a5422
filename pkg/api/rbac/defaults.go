// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"keelson.dev/keelson/pkg/api/unset"
)

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultRoleBinding(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	unset.Fill(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		switch subjects[i].Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			unset.Fill(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}
