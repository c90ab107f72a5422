// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

// roleRow returns the row of the kind table for the resource roles.
func roleRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.RoleList](resource.Kind[*rbacv1.Role]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles", Kind: "Role", Namespaced: true,
		StoredForms: olderRoles(),

		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateRole,
		ValidateUpdate:           validateRoleUpdate,
		ValidateName:             nameRole,
		Hooks:                    escalationHooks[rbacv1.Role](check),
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	})
}

// clusterRoleRow returns the row of the kind table for the resource clusterroles.
func clusterRoleRow(check CheckEscalation) *resource.Row {
	return resource.Of[rbacv1.ClusterRoleList](resource.Kind[*rbacv1.ClusterRole]{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole",
		StoredForms: olderClusterRoles(),

		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateClusterRole,
		ValidateUpdate:           validateClusterRoleUpdate,
		ValidateName:             nameClusterRole,
		Hooks:                    escalationHooks[rbacv1.ClusterRole](check),
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	})
}

// Names of roles and bindings can be any names that fit into a segment of a URL path, such as
// "system:node".

func nameRole(name string, prefix bool) []string { return path.ValidatePathSegmentName(name, prefix) }

func nameClusterRole(name string, prefix bool) []string { return nameRole(name, prefix) }

func validateRole(_ context.Context, role *rbacv1.Role) field.ErrorList {
	var r report.Report
	checkRules(&r, role.Rules, true)
	return r.Errors
}

func validateRoleUpdate(ctx context.Context, role, _ *rbacv1.Role) field.ErrorList {
	return validateRole(ctx, role)
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
	return validateClusterRole(ctx, role)
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

// In v1alpha1, the fields of rules have other numbers in protobuf, and subjects have an API version
// instead of a group.

func olderRoles() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[rbacv1alpha1.Role, rbacv1.Role](older("Role"), nil)}
}

func olderClusterRoles() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[rbacv1alpha1.ClusterRole,
		rbacv1.ClusterRole](older("ClusterRole"), nil)}
}

func older(kind string) schema.GroupVersionKind {
	return rbacv1alpha1.SchemeGroupVersion.WithKind(kind)
}
