// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/unset"
)

// roleBindingRow returns the row of the kind table for the resource rolebindings.
func roleBindingRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.RoleBindingList](resource.Kind[*rbacv1.RoleBinding]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings", Kind: "RoleBinding", Namespaced: true,

		Default:                  defaultRoleBinding,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
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

// clusterRoleBindingRow returns the row of the kind table for the resource clusterrolebindings.
func clusterRoleBindingRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.ClusterRoleBindingList](resource.Kind[*rbacv1.ClusterRoleBinding]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings", Kind: "ClusterRoleBinding",

		Default:                  defaultClusterRoleBinding,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
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
			{Name: "ServiceAccounts", Type: "string", Description: "ServiceAccounts in the clusterRoleBinding",
				Priority: column.Wide},
		},
		Cells: clusterRoleBindingCells,
	})
}

func nameRoleBinding(name string, prefix bool) []string { return nameRole(name, prefix) }

func nameClusterRoleBinding(name string, prefix bool) []string { return nameRole(name, prefix) }

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

func validateRoleBinding(_ context.Context, b *rbacv1.RoleBinding) field.ErrorList {
	return validateBinding(&b.RoleRef, b.Subjects, true, "Role", "ClusterRole")
}

func validateRoleBindingUpdate(ctx context.Context, b, old *rbacv1.RoleBinding) field.ErrorList {
	r := report.Report{Errors: validateRoleBinding(ctx, b)}
	keepRef(&r, &b.RoleRef, &old.RoleRef)
	return r.Errors
}

func validateClusterRoleBinding(_ context.Context, b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return validateBinding(&b.RoleRef, b.Subjects, false, "ClusterRole")
}

func validateClusterRoleBindingUpdate(ctx context.Context, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	r := report.Report{Errors: validateClusterRoleBinding(ctx, b)}
	keepRef(&r, &b.RoleRef, &old.RoleRef)
	return r.Errors
}

func keepRef(r *report.Report, ref, old *rbacv1.RoleRef) {
	r.Immutable(field.NewPath("roleRef"), *ref, *old)
}

func validateBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, kinds ...string) field.ErrorList {
	var r report.Report
	path := field.NewPath("roleRef")
	report.OneOf(&r, path.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)
	report.OneOf(&r, path.Child("kind"), ref.Kind, kinds...)
	if ref.Name == "" {
		r.Required(path.Child("name"), "")
	} else {
		r.Each(path.Child("name"), ref.Name, nameRole(ref.Name, false))
	}
	for i := range subjects {
		checkSubject(&r, &subjects[i], namespaced, field.NewPath("subjects").Index(i))
	}
	return r.Errors
}

func checkSubject(r *report.Report, s *rbacv1.Subject, namespaced bool, at *field.Path) {
	if s.Name == "" {
		r.Required(at.Child("name"), "")
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			r.Each(at.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false))
		}
		report.OneOf(r, at.Child("apiGroup"), s.APIGroup, "")
		if !namespaced && s.Namespace == "" {
			r.Required(at.Child("namespace"), "")
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		report.OneOf(r, at.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)
	default:
		report.OneOf(r, at.Child("kind"), s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)
	}
}

func clusterRoleBindingCells(b *rbacv1.ClusterRoleBinding, env resource.CellEnv) []any {
	return append([]any{b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, env.Age(b.CreationTimestamp)},
		subjects(b.Subjects)...)
}

func roleBindingCells(b *rbacv1.RoleBinding, env resource.CellEnv) []any {
	return append([]any{b.Name, b.RoleRef.Kind + "/" + b.RoleRef.Name, env.Age(b.CreationTimestamp)},
		subjects(b.Subjects)...)
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
		resource.NewStoredForm(older("ClusterRoleBinding"),
			func(in *rbacv1alpha1.ClusterRoleBinding, out *rbacv1.ClusterRoleBinding) {
				out.Subjects = subjectsOf(in.Subjects)
				ownRole(&out.RoleRef)
			}),
	}
}

// ownRole sets the API group of a role reference if it is empty. In v1alpha1, the default was the
// group of roles.
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
		// In v1alpha1, "*" stood for all users except anonymous ones.
		s.Kind, s.Name = rbacv1.GroupKind, "system:authenticated"
	}
	return s
}
