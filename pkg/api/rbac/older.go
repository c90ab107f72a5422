// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
)

// In v1alpha1, fields of rules have other numbers, and subjects say a version and not a group.

func olderRoles() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[rbacv1alpha1.Role, rbacv1.Role](older("Role"), nil)}
}

func olderClusterRoles() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[rbacv1alpha1.ClusterRole, rbacv1.ClusterRole](older("ClusterRole"), nil)}
}

func olderRoleBindings() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(older("RoleBinding"), func(in *rbacv1alpha1.RoleBinding, out *rbacv1.RoleBinding) {
			out.Subjects = subjectsOf(in.Subjects)
			ownRole(&out.RoleRef)
		}),
	}
}

func olderClusterRoleBindings() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(older("ClusterRoleBinding"), func(in *rbacv1alpha1.ClusterRoleBinding, out *rbacv1.ClusterRoleBinding) {
			out.Subjects = subjectsOf(in.Subjects)
			ownRole(&out.RoleRef)
		}),
	}
}

func older(kind string) schema.GroupVersionKind {
	return rbacv1alpha1.SchemeGroupVersion.WithKind(kind)
}

// ownRole names the group of roles, which was the default.
func ownRole(ref *rbacv1.RoleRef) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
}

func subjectsOf(older []rbacv1alpha1.Subject) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, s := range older {
		out = append(out, subjectOf(s))
	}
	return out
}

func subjectOf(older rbacv1alpha1.Subject) rbacv1.Subject {
	s := rbacv1.Subject{Kind: older.Kind, Name: older.Name, Namespace: older.Namespace}
	switch older.Kind {
	case rbacv1.ServiceAccountKind:
	case rbacv1.UserKind, rbacv1.GroupKind:
		s.APIGroup = rbacv1.GroupName
	default:
		if gv, err := schema.ParseGroupVersion(older.APIVersion); err == nil {
			s.APIGroup = gv.Group
		}
	}
	if s.Kind == rbacv1.UserKind && s.Name == "*" {
		s.Kind, s.Name = rbacv1.GroupKind, "system:authenticated" // it never was everybody
	}
	return s
}
