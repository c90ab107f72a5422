// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// flowSchemaRow returns the row of the kind table for the resource flowschemas.
func flowSchemaRow() *resource.Row {
	parts := strategy.Parts[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaSpec,
		flowcontrolv1.FlowSchemaStatus](func(o *flowcontrolv1.FlowSchema) (*flowcontrolv1.FlowSchemaSpec,
		*flowcontrolv1.FlowSchemaStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[flowcontrolv1.FlowSchemaList](resource.Kind[*flowcontrolv1.FlowSchema]{
		Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas", Kind: "FlowSchema",

		Default:                  defaultFlowSchema,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		Validate:                 validateFlowSchema,
		ValidateUpdate:           validateFlowSchemaUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "PriorityLevel", Type: "string",
				Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]},
			{Name: "MatchingPrecedence", Type: "string",
				Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["matchingPrecedence"]},
			{Name: "DistinguisherMethod", Type: "string",
				Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["distinguisherMethod"]},
			column.Age(),
			{Name: "MissingPL", Type: "string", Description: "references a broken or non-existent PriorityLevelConfiguration"},
		},
		Cells: flowSchemaCells,

		RowOrder: func(a, b *flowcontrolv1.FlowSchema) int { // requests are matched in this order
			return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
		},

		Subresources: []resource.Sub[*flowcontrolv1.FlowSchema]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndAllMeta,
				ValidateUpdate: validateFlowSchemaStatus},
		},
	})
}

const (
	matchingPrecedence int32 = 1000
	concurrencyShares  int32 = 30
	queues             int32 = 64
	handSize           int32 = 8
	queueLength        int32 = 50
)

func defaultFlowSchema(s *flowcontrolv1.FlowSchema) {
	unset.Fill(&s.Spec.MatchingPrecedence, matchingPrecedence)
}

const (
	wildcard   = "*"
	exemptName = "exempt"
)

func validateFlowSchema(_ context.Context, s *flowcontrolv1.FlowSchema) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	checkSchema(&r, path, s.Name, &s.Spec)
	i := slices.IndexFunc(bootstrap.MandatoryFlowSchemas, func(m *flowcontrolv1.FlowSchema) bool {
		return m.Name == s.Name
	})
	if i >= 0 && !equality.Semantic.DeepEqual(s.Spec, bootstrap.MandatoryFlowSchemas[i].Spec) {
		r.Invalid(path, s.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name))
	}
	checkSchemaConditions(&r, s)
	return r.Errors
}

func validateFlowSchemaUpdate(ctx context.Context, s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateFlowSchema(ctx, s)
}

func validateFlowSchemaStatus(_ context.Context, s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	var r report.Report
	checkSchemaConditions(&r, s)
	return r.Errors
}

func checkSchemaConditions(r *report.Report, s *flowcontrolv1.FlowSchema) {
	conditions := make([]string, len(s.Status.Conditions))
	for i, c := range s.Status.Conditions {
		conditions[i] = string(c.Type)
	}
	checkConditions(r, conditions)
}

// checkConditions reports empty and repeated types. conditions are the types of the conditions in a
// status.
func checkConditions(r *report.Report, conditions []string) {
	for i, name := range conditions {
		at := field.NewPath("status", "conditions").Index(i).Child("type")
		if slices.Contains(conditions[:i], name) {
			r.Duplicate(at, name)
		}
		if name == "" {
			r.Required(at, "")
		}
	}
}

func checkSchema(r *report.Report, path *field.Path, name string, s *flowcontrolv1.FlowSchemaSpec) {
	at := path.Child("matchingPrecedence")
	switch p := s.MatchingPrecedence; {
	case p <= 0:
		r.Invalid(at, p, "must be a positive value")
	case p > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		r.Invalid(at, p, fmt.Sprintf("must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))
	case p == 1 && name != exemptName:
		r.Invalid(at, p, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
	if m := s.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType &&
		m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		r.Add(field.NotSupported(path.Child("distinguisherMethod", "type"), m,
			[]flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
				flowcontrolv1.FlowDistinguisherMethodByUserType}))
	}
	at = path.Child("priorityLevelConfiguration", "name")
	if level := s.PriorityLevelConfiguration.Name; level == "" {
		r.Required(at, "must reference a priority level")
	} else {
		r.Subdomain(at, level)
	}
	for i := range s.Rules {
		checkRules(r, path.Child("rules").Index(i), &s.Rules[i])
	}
}

func checkRules(r *report.Report, path *field.Path, rules *flowcontrolv1.PolicyRulesWithSubjects) {
	if len(rules.Subjects) == 0 {
		r.Required(path.Child("subjects"), "subjects must contain at least one value")
	}
	for i := range rules.Subjects {
		checkSubject(r, path.Child("subjects").Index(i), &rules.Subjects[i])
	}
	if len(rules.ResourceRules) == 0 && len(rules.NonResourceRules) == 0 {
		r.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
	}
	for i := range rules.ResourceRules {
		checkResourceRule(r, path.Child("resourceRules").Index(i), &rules.ResourceRules[i])
	}
	for i := range rules.NonResourceRules {
		checkPathRule(r, path.Child("nonResourceRules").Index(i), &rules.NonResourceRules[i])
	}
}

// checkSubject validates a subject. Of the fields user, group and serviceAccount, only the one that
// belongs to the subject's kind must be set.
func checkSubject(r *report.Report, path *field.Path, s *flowcontrolv1.Subject) {
	kinds := []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup,
		flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser}
	if !slices.Contains(kinds, s.Kind) {
		report.OneOf(r, path.Child("kind"), s.Kind, kinds...)
		return
	}
	parts := []struct {
		kind  flowcontrolv1.SubjectKind
		name  string
		set   bool
		check func(*field.Path)
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil,
			func(at *field.Path) { checkAccount(r, at, s.ServiceAccount) }},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil, func(at *field.Path) { checkNamed(r, at, s.User.Name) }},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil, func(at *field.Path) { checkNamed(r, at, s.Group.Name) }},
	}
	for _, p := range parts {
		switch at := path.Child(p.name); {
		case p.kind == s.Kind && p.set:
			p.check(at)
		case p.kind == s.Kind:
			r.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", p.name, p.kind))
		}
	}
	for _, p := range parts {
		if p.kind != s.Kind && p.set {
			r.Forbidden(path.Child(p.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", p.name, p.kind))
		}
	}
}

func checkNamed(r *report.Report, path *field.Path, name string) {
	if name == "" {
		r.Required(path.Child("name"), "")
	}
}

func checkAccount(r *report.Report, path *field.Path, a *flowcontrolv1.ServiceAccountSubject) {
	checkNamed(r, path, a.Name)
	if a.Name != "" && a.Name != flowcontrolv1.NameAll {
		r.Each(path.Child("name"), a.Name, apivalidation.ValidateServiceAccountName(a.Name, false))
	}
	if a.Namespace == "" {
		r.Required(path.Child("namespace"), "must specify namespace for service account")
		return
	}
	r.Each(path.Child("namespace"), a.Namespace, apivalidation.ValidateNamespaceName(a.Namespace, false))
}

// verbs returns the verbs that a rule of a FlowSchema can have, in the order in which messages list
// them.
func verbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
}

func checkVerbs(r *report.Report, path *field.Path, list []string) {
	switch {
	case len(list) == 0:
		r.Required(path, "verbs must contain at least one value")
	case slices.Contains(list, wildcard):
		checkAlone(r, path, list, "verbs")
	case slices.ContainsFunc(list, func(v string) bool { return !slices.Contains(verbs(), v) }):
		r.Add(field.NotSupported(path, list, verbs()))
	}
}

// checkAlone reports a list that contains a wildcard and other items. others names such items in
// the message.
func checkAlone(r *report.Report, path *field.Path, list []string, others string) {
	if len(list) > 1 && slices.Contains(list, wildcard) {
		r.Invalid(path, list, fmt.Sprintf("if '*' is present, must not specify other %s", others))
	}
}

func checkResourceRule(r *report.Report, path *field.Path, rule *flowcontrolv1.ResourcePolicyRule) {
	checkVerbs(r, path.Child("verbs"), rule.Verbs)
	if len(rule.APIGroups) == 0 {
		r.Required(path.Child("apiGroups"), "resource rules must supply at least one api group")
	}
	checkAlone(r, path.Child("apiGroups"), rule.APIGroups, "api groups")
	if len(rule.Resources) == 0 {
		r.Required(path.Child("resources"), "resource rules must supply at least one resource")
	}
	checkAlone(r, path.Child("resources"), rule.Resources, "resources")
	at := path.Child("namespaces")
	if len(rule.Namespaces) == 0 && !rule.ClusterScope {
		r.Required(at, "resource rules that are not cluster scoped must supply at least one namespace")
		return
	}
	if slices.Contains(rule.Namespaces, wildcard) {
		checkAlone(r, at, rule.Namespaces, "namespaces")
		return
	}
	for i, name := range rule.Namespaces {
		for _, reason := range apivalidation.ValidateNamespaceName(name, false) {
			r.Invalid(at.Index(i), name, "each member of this list must be '*' or a DNS-1123 label; "+reason)
		}
	}
}

func checkPathRule(r *report.Report, path *field.Path, rule *flowcontrolv1.NonResourcePolicyRule) {
	checkVerbs(r, path.Child("verbs"), rule.Verbs)
	at := path.Child("nonResourceURLs")
	if len(rule.NonResourceURLs) == 0 {
		r.Required(at, "nonResourceURLs must contain at least one value")
	}
	if slices.Contains(rule.NonResourceURLs, wildcard) {
		checkAlone(r, at, rule.NonResourceURLs, "non-resource URLs")
		return
	}
	for i, url := range rule.NonResourceURLs {
		if reason := badPath(url); reason != "" {
			r.Invalid(at.Index(i), url, reason)
		}
	}
}

// badPath returns the fault of a non-resource URL path, or "" if the path is valid.
func badPath(path string) string {
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case !strings.HasPrefix(path, "/"):
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	}
	if n := strings.Count(path, wildcard); n > 1 || n == 1 && !strings.HasSuffix(path, "/"+wildcard) {
		return "wildcard can only do suffix matching"
	}
	return ""
}

func flowSchemaCells(s *flowcontrolv1.FlowSchema, env resource.CellEnv) []any {
	method := column.None
	if s.Spec.DistinguisherMethod != nil {
		method = string(s.Spec.DistinguisherMethod.Type)
	}
	dangling := "?"
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
			break
		}
	}
	return []any{
		s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method,
		env.Age(s.CreationTimestamp), dangling,
	}
}
