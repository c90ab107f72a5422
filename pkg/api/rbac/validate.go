// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

func validateRole(_ context.Context, role *rbacv1.Role) field.ErrorList {
	var r report.Report
	checkRules(&r, role.Rules, true)
	return r.Errors
}

func validateRoleUpdate(ctx context.Context, role, _ *rbacv1.Role) field.ErrorList {
	return append(validateRole(ctx, role), resource.MetaHere())
}

func validateClusterRole(_ context.Context, role *rbacv1.ClusterRole) field.ErrorList {
	var r report.Report
	checkRules(&r, role.Rules, false)
	if a := role.AggregationRule; a != nil {
		path := field.NewPath("aggregationRule", "clusterRoleSelectors")
		if len(a.ClusterRoleSelectors) == 0 {
			r.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
		}
		for i := range a.ClusterRoleSelectors {
			r.Selector(path.Index(i), &a.ClusterRoleSelectors[i])
			if _, err := metav1.LabelSelectorAsSelector(&a.ClusterRoleSelectors[i]); err != nil {
				r.Invalid(path.Index(i), nil, "invalid label selector.")
			}
		}
	}
	return r.Errors
}

func validateClusterRoleUpdate(ctx context.Context, role, _ *rbacv1.ClusterRole) field.ErrorList {
	return append(validateClusterRole(ctx, role), resource.MetaHere())
}

func checkRules(r *report.Report, rules []rbacv1.PolicyRule, namespaced bool) {
	for i := range rules {
		rule, path := &rules[i], field.NewPath("rules").Index(i)
		if len(rule.Verbs) == 0 {
			r.Required(path.Child("verbs"), "verbs must contain at least one value")
		}
		if len(rule.NonResourceURLs) > 0 {
			at := path.Child("nonResourceURLs")
			if namespaced {
				r.Invalid(at, rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")
			}
			if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0 {
				r.Invalid(at, rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")
			}
			continue
		}
		if len(rule.APIGroups) == 0 {
			r.Required(path.Child("apiGroups"), "resource rules must supply at least one api group")
		}
		if len(rule.Resources) == 0 {
			r.Required(path.Child("resources"), "resource rules must supply at least one resource")
		}
	}
}

func validateRoleBinding(_ context.Context, b *rbacv1.RoleBinding) field.ErrorList {
	return validateBinding(&b.RoleRef, b.Subjects, true, "Role", "ClusterRole")
}

func validateRoleBindingUpdate(ctx context.Context, b, old *rbacv1.RoleBinding) field.ErrorList {
	r := report.Report{Errors: append(validateRoleBinding(ctx, b), resource.MetaHere())}
	keepRef(&r, &b.RoleRef, &old.RoleRef)
	return r.Errors
}

func validateClusterRoleBinding(_ context.Context, b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return validateBinding(&b.RoleRef, b.Subjects, false, "ClusterRole")
}

func validateClusterRoleBindingUpdate(ctx context.Context, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	r := report.Report{Errors: append(validateClusterRoleBinding(ctx, b), resource.MetaHere())}
	keepRef(&r, &b.RoleRef, &old.RoleRef)
	return r.Errors
}

func keepRef(r *report.Report, ref, old *rbacv1.RoleRef) {
	if *ref != *old {
		r.Invalid(field.NewPath("roleRef"), *ref, "cannot change roleRef")
	}
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
