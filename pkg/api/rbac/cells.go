// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"keelson.dev/apiserver/resource"
)

func clusterRoleBindingCells(b *rbacv1.ClusterRoleBinding, env resource.CellEnv) []any {
	return append([]any{b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, env.Age(b.CreationTimestamp)}, subjects(b.Subjects)...)
}

func roleBindingCells(b *rbacv1.RoleBinding, env resource.CellEnv) []any {
	return append([]any{b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, env.Age(b.CreationTimestamp)}, subjects(b.Subjects)...)
}

func subjects(list []rbacv1.Subject) []any {
	var users, groups, accounts []string
	for _, s := range list {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}
}
