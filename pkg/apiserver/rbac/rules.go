// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Allows returns a function that reports whether any of the RBAC rules allows a request.
func Allows(rules []rbacv1.PolicyRule) func(authorizer.Attributes) bool {
	return func(attrs authorizer.Attributes) bool { return allowsAny(rules, attrs) }
}

// allowsAny reports whether any of the RBAC rules allows the request.
func allowsAny(rules []rbacv1.PolicyRule, attrs authorizer.Attributes) bool {
	for i := range rules {
		if allows(&rules[i], attrs) {
			return true
		}
	}
	return false
}

func allows(rule *rbacv1.PolicyRule, attrs authorizer.Attributes) bool {
	if !has(rule.Verbs, attrs.GetVerb()) {
		return false
	}
	if !attrs.IsResourceRequest() {
		return matchesPath(rule.NonResourceURLs, attrs.GetPath())
	}
	return has(rule.APIGroups, attrs.GetAPIGroup()) &&
		matchesResource(rule.Resources, attrs.GetResource(), attrs.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, attrs.GetName()))
}

// has reports whether list contains want or "*".
func has(list []string, want string) bool {
	for _, s := range list {
		if s == rbacv1.VerbAll || s == want {
			return true
		}
	}
	return false
}

// matchesResource reports whether list contains resource, or "resource/sub" if sub is not empty. It
// does not build that string, to save the allocation. A SubjectAccessReview may have "resource/sub"
// in resource itself.
func matchesResource(list []string, resource, sub string) bool {
	for _, s := range list {
		switch {
		case s == rbacv1.ResourceAll:
			return true
		case sub == "":
			if s == resource {
				return true
			}
		case ends(s, sub) && (s[:len(s)-len(sub)-1] == resource || s[:len(s)-len(sub)-1] == rbacv1.ResourceAll):
			return true
		}
	}
	return false
}

// ends reports whether s ends in "/" and sub.
func ends(s, sub string) bool {
	at := len(s) - len(sub) - 1
	return at >= 0 && s[at] == '/' && s[at+1:] == sub
}

func matchesPath(list []string, path string) bool {
	for _, s := range list {
		if s == rbacv1.NonResourceAll || s == path {
			return true
		}
		if prefix, ok := strings.CutSuffix(s, "*"); ok && strings.HasPrefix(path, strings.TrimRight(prefix, "*")) {
			return true
		}
	}
	return false
}
