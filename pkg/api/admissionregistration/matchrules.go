// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/unset"
)

const wildcard = "*"

func checkFailurePolicy(r *report.Report, path *field.Path, p admissionregistrationv1.FailurePolicyType) {
	report.OneOf(r, path, p, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
}

func checkMatchPolicy(r *report.Report, path *field.Path, p admissionregistrationv1.MatchPolicyType) {
	report.OneOf(r, path, p, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
}

func checkReinvocation(r *report.Report, path *field.Path, p admissionregistrationv1.ReinvocationPolicyType) {
	report.OneOf(r, path, p, admissionregistrationv1.IfNeededReinvocationPolicy,
		admissionregistrationv1.NeverReinvocationPolicy)
}

// checkMatch checks the rules and selectors that select the requests that a policy or binding
// applies to.
func checkMatch(r *report.Report, path *field.Path, m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	if m.MatchPolicy == nil {
		r.Required(path.Child("matchPolicy"), "")
	} else {
		checkMatchPolicy(r, path.Child("matchPolicy"), *m.MatchPolicy)
	}
	if m.NamespaceSelector == nil {
		r.Required(path.Child("namespaceSelector"), "")
	} else {
		r.Selector(path.Child("namespaceSelector"), m.NamespaceSelector)
	}
	if m.ObjectSelector == nil {
		r.Required(path.Child("objectSelector"), "")
	} else {
		r.Selector(path.Child("objectSelector"), m.ObjectSelector)
	}
	for i := range m.ResourceRules {
		checkNamedRule(r, path.Child("resourceRules").Index(i), &m.ResourceRules[i])
	}
	for i := range m.ExcludeResourceRules {
		checkNamedRule(r, path.Child("excludeResourceRules").Index(i), &m.ExcludeResourceRules[i])
	}
}

// checkMutable reports rules about deletes, because a delete has no object to mutate.
func checkMutable(r *report.Report, path *field.Path, m *admissionregistrationv1.MatchResources) {
	for i := range m.ResourceRules {
		for _, op := range m.ResourceRules[i].Operations {
			report.OneOf(r, path.Child("resourceRules", "operations"), op,
				admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
				admissionregistrationv1.Create, admissionregistrationv1.Update)
		}
	}
}

func checkNamedRule(r *report.Report, path *field.Path, rule *admissionregistrationv1.NamedRuleWithOperations) {
	seen := sets.New[string]()
	for i, name := range rule.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		r.Each(at, name, content.IsPathSegmentName(name))
		if seen.Has(name) {
			r.Duplicate(at, name)
		}
		seen.Insert(name)
	}
	checkOperations(r, path, &rule.RuleWithOperations)
}

func checkOperations(r *report.Report, path *field.Path, rule *admissionregistrationv1.RuleWithOperations) {
	at := path.Child("operations")
	switch n := len(rule.Operations); {
	case n == 0:
		r.Required(at, "")
	case n > 1 && slices.Contains(rule.Operations, admissionregistrationv1.OperationAll):
		r.Invalid(at, rule.Operations, "if '*' is present, must not specify other operations")
	}
	for i, op := range rule.Operations {
		report.OneOf(r, at.Index(i), op,
			admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
			admissionregistrationv1.Delete, admissionregistrationv1.Update)
	}
	checkRule(r, path, &rule.Rule)
}

func checkRule(r *report.Report, path *field.Path, rule *admissionregistrationv1.Rule) {
	checkList(r, path.Child("apiGroups"), rule.APIGroups, "API groups")
	checkList(r, path.Child("apiVersions"), rule.APIVersions, "API versions")
	for i, v := range rule.APIVersions {
		if v == "" {
			r.Required(path.Child("apiVersions").Index(i), "")
		}
	}
	checkResources(r, path.Child("resources"), rule.Resources)
	if rule.Scope != nil {
		report.OneOf(r, path.Child("scope"), *rule.Scope,
			admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)
	}
}

// checkList reports an empty list, and a list that has a wildcard and other items. others is the
// name of such items in the message.
func checkList(r *report.Report, path *field.Path, list []string, others string) {
	if len(list) == 0 {
		r.Required(path, "")
	}
	if len(list) > 1 && slices.Contains(list, wildcard) {
		r.Invalid(path, list, "if '*' is present, must not specify other "+others)
	}
}

// checkResources checks the items of a rule's resources, such as "pods" or "pods/status". It
// reports an item that an earlier wildcard already covers.
func checkResources(r *report.Report, path *field.Path, resources []string) {
	if len(resources) == 0 {
		r.Required(path, "")
	}
	wholes, subs := sets.New[string](), sets.New[string]() // resources of items x/*; subresources of items */y
	plain := false
	for i, name := range resources {
		at := path.Index(i)
		if name == "" {
			r.Required(at, "")
			continue
		}
		resource, sub, ok := strings.Cut(name, "/")
		if !ok {
			plain = name != wildcard // as in Kubernetes, the last item without a slash decides
			continue
		}
		if wholes.Has(resource) {
			r.Invalid(at, name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name))
		}
		if subs.Has(sub) {
			r.Invalid(at, name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name))
		}
		if sub == wildcard {
			wholes.Insert(resource)
		}
		if resource == wildcard {
			subs.Insert(sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		r.Invalid(path, resources, "if '*/*' is present, must not specify other resources")
	}
	if plain && slices.Contains(resources, wildcard) {
		r.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources")
	}
}

func defaultMatch(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	unset.Point(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	unset.Make(&m.NamespaceSelector)
	unset.Make(&m.ObjectSelector)
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			unset.Point(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}
