// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// validatingWebhookConfigurationRow returns the row of the kind table for the resource
// validatingwebhookconfigurations.
func validatingWebhookConfigurationRow(v *validator) *resource.Row {
	return resource.Of[admissionregistrationv1.ValidatingWebhookConfigurationList](
		resource.Kind[*admissionregistrationv1.ValidatingWebhookConfiguration]{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
			Kind:       "ValidatingWebhookConfiguration",
			Categories: []string{"api-extensions"},

			MetaOnUpdate:  resource.CheckNameAndFinalizers,
			Default:       defaultValidatingWebhookConfiguration,
			PrepareCreate: strategy.StartGeneration[admissionregistrationv1.ValidatingWebhookConfiguration],
			PrepareUpdate: strategy.CountSpec(
				func(o *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
					return &o.Webhooks
				}),
			AnyFinalizer:   true,
			Validate:       unreserved(v.validatingWebhooks),
			ValidateUpdate: v.validatingWebhooksUpdate,
			Warnings:       warnValidatingWebhooks,
			StoredForms:    olderValidatingWebhooks(),

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "Webhooks", Type: "integer",
					Description: "Webhooks indicates the number of webhooks registered in this configuration"},
				column.Age(),
			},
			Cells: validatingWebhookConfigurationCells,
		})
}

// mutatingWebhookConfigurationRow returns the row of the kind table for the resource
// mutatingwebhookconfigurations.
func mutatingWebhookConfigurationRow(v *validator) *resource.Row {
	return resource.Of[admissionregistrationv1.MutatingWebhookConfigurationList](
		resource.Kind[*admissionregistrationv1.MutatingWebhookConfiguration]{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations",
			Kind:       "MutatingWebhookConfiguration",
			Categories: []string{"api-extensions"},

			MetaOnUpdate:  resource.CheckNameAndFinalizers,
			Default:       defaultMutatingWebhookConfiguration,
			PrepareCreate: strategy.StartGeneration[admissionregistrationv1.MutatingWebhookConfiguration],
			PrepareUpdate: strategy.CountSpec(
				func(o *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
					return &o.Webhooks
				}),
			AnyFinalizer:   true,
			Validate:       unreserved(v.mutatingWebhooks),
			ValidateUpdate: v.mutatingWebhooksUpdate,
			Warnings:       warnMutatingWebhooks,
			StoredForms:    olderMutatingWebhooks(),

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "Webhooks", Type: "integer",
					Description: "Webhooks indicates the number of webhooks registered in this configuration"},
				column.Age(),
			},
			Cells: mutatingWebhookConfigurationCells,
		})
}

func warnValidatingWebhooks(_ context.Context, c,
	_ *admissionregistrationv1.ValidatingWebhookConfiguration) (out []string) {
	for i := range c.Webhooks {
		out = append(out, warnRules(i, c.Webhooks[i].Rules)...)
	}
	return out
}

func warnMutatingWebhooks(_ context.Context, c,
	_ *admissionregistrationv1.MutatingWebhookConfiguration) (out []string) {
	for i := range c.Webhooks {
		out = append(out, warnRules(i, c.Webhooks[i].Rules)...)
	}
	return out
}

// Reviews returns the resources by which components ask who a client is and what the client may do.
// Objects of these resources are not stored. Webhooks and policies never apply to them.
func Reviews() []schema.GroupResource {
	return []schema.GroupResource{
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
		{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}
}

// warnRules warns about rules of a webhook that name resources of the list Reviews. It does not
// warn about rules with wildcards, because these are useful for other resources.
func warnRules(webhook int, rules []admissionregistrationv1.RuleWithOperations) []string {
	var out []string
	for i, rule := range rules {
		if slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Resources, "*") {
			continue
		}
		seen := map[schema.GroupResource]bool{}
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				named := schema.GroupResource{Group: group, Resource: name}
				if seen[named] || !slices.Contains(Reviews(), named) {
					continue
				}
				seen[named] = true
				out = append(out, fmt.Sprintf("%s: %s is excluded from admission webhooks; this rule will have no effect",
					field.NewPath("webhooks").Index(webhook).Child("rules").Index(i), named))
			}
		}
	}
	return out
}

const (
	webhookTimeoutSeconds int32 = 10
	servicePort           int32 = 443
)

func defaultValidatingWebhookConfiguration(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		unset.Point(&w.FailurePolicy, admissionregistrationv1.Fail)
		unset.Point(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		unset.Make(&w.NamespaceSelector)
		unset.Make(&w.ObjectSelector)
		unset.Point(&w.TimeoutSeconds, webhookTimeoutSeconds)
		defaultWebhook(&w.ClientConfig, w.Rules)
	}
}

func defaultMutatingWebhookConfiguration(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		unset.Point(&w.FailurePolicy, admissionregistrationv1.Fail)
		unset.Point(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		unset.Make(&w.NamespaceSelector)
		unset.Make(&w.ObjectSelector)
		unset.Point(&w.TimeoutSeconds, webhookTimeoutSeconds)
		unset.Point(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultWebhook(&w.ClientConfig, w.Rules)
	}
}

// olderValidatingWebhooks returns the form in which servers stored configurations of v1beta1. It has
// other defaults than v1, and defaults for fields that clients must set in v1.
func olderValidatingWebhooks() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm(
		admissionregistrationv1beta1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		func(_ *admissionregistrationv1beta1.ValidatingWebhookConfiguration,
			out *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range out.Webhooks {
				w := &out.Webhooks[i]
				defaultOfBeta(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions)
			}
		})}
}

// olderMutatingWebhooks is like olderValidatingWebhooks, for mutating webhooks.
func olderMutatingWebhooks() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm(
		admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
		func(_ *admissionregistrationv1beta1.MutatingWebhookConfiguration,
			out *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range out.Webhooks {
				w := &out.Webhooks[i]
				defaultOfBeta(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions)
			}
		})}
}

func defaultOfBeta(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType,
	effects **admissionregistrationv1.SideEffectClass, seconds **int32, versions *[]string) {
	unset.Point(failure, admissionregistrationv1.Ignore)
	unset.Point(match, admissionregistrationv1.Exact)
	unset.Point(effects, admissionregistrationv1.SideEffectClassUnknown)
	unset.Point(seconds, maxTimeoutSeconds)
	if len(*versions) == 0 {
		*versions = []string{admissionregistrationv1beta1.SchemeGroupVersion.Version}
	}
}

func defaultWebhook(config *admissionregistrationv1.WebhookClientConfig,
	rules []admissionregistrationv1.RuleWithOperations) {
	if config.Service != nil {
		unset.Point(&config.Service.Port, servicePort)
	}
	for i := range rules {
		unset.Point(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

const maxTimeoutSeconds = 30

// hook is a validating or mutating webhook. For a validating webhook, reinvocation is nil.
type hook struct {
	admissionregistrationv1.ValidatingWebhook
	reinvocation *admissionregistrationv1.ReinvocationPolicyType
}

func validatingHooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		hooks[i].ValidatingWebhook = c.Webhooks[i]
	}
	return hooks
}

func mutatingHooks(c *admissionregistrationv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{reinvocation: w.ReinvocationPolicy, ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}}
	}
	return hooks
}

// leniency says which rules an update need not comply with, because the stored webhooks violate
// them. Each field is such a rule. The rules are newer than the stored objects.
type leniency struct {
	sideEffects, versions, names, selectors, conditions bool
}

// tolerate returns the rules that the old webhooks violate. conditions is true if the match
// conditions are unchanged.
func tolerate(now, old []hook) leniency {
	l := leniency{conditions: len(now) == len(old)}
	names := sets.New[string]()
	for i, h := range old {
		l.names = l.names || names.Has(h.Name)
		names.Insert(h.Name)
		l.sideEffects = l.sideEffects || h.SideEffects == nil || !slices.Contains(harmless(), *h.SideEffects)
		l.versions = l.versions || len(h.AdmissionReviewVersions) > 0 &&
			!slices.ContainsFunc(h.AdmissionReviewVersions, understood)
		for _, s := range []*metav1.LabelSelector{h.NamespaceSelector, h.ObjectSelector} {
			l.selectors = l.selectors || s != nil &&
				len(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
		}
		l.conditions = l.conditions && equality.Semantic.DeepEqual(now[i].MatchConditions, h.MatchConditions)
	}
	return l
}

// harmless returns the classes of side effects with which a webhook may be called in a dry run.
func harmless() []admissionregistrationv1.SideEffectClass {
	return []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone,
		admissionregistrationv1.SideEffectClassNoneOnDryRun}
}

func sideEffects(l leniency) []admissionregistrationv1.SideEffectClass {
	if !l.sideEffects {
		return harmless()
	}
	return append(harmless(), admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
}

// reviewVersions returns the versions of AdmissionReview that the server supports.
func reviewVersions() []string { return []string{"v1", "v1beta1"} }

func understood(version string) bool { return slices.Contains(reviewVersions(), version) }

func (v *validator) validatingWebhooks(_ context.Context,
	c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return v.webhooks(validatingHooks(c), nil, leniency{})
}

func (v *validator) validatingWebhooksUpdate(_ context.Context, c,
	old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return v.webhooks(validatingHooks(c), validatingHooks(old), tolerate(validatingHooks(c), validatingHooks(old)))
}

func (v *validator) mutatingWebhooks(_ context.Context,
	c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return v.webhooks(mutatingHooks(c), nil, leniency{})
}

func (v *validator) mutatingWebhooksUpdate(_ context.Context, c,
	old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return v.webhooks(mutatingHooks(c), mutatingHooks(old), tolerate(mutatingHooks(c), mutatingHooks(old)))
}

func (v *validator) webhooks(hooks, old []hook, l leniency) field.ErrorList {
	var r report.Report
	x := v.stateless()
	for _, h := range old {
		x.keepConditions(h.MatchConditions)
	}
	names := sets.New[string]()
	for i := range hooks {
		h, path := &hooks[i], field.NewPath("webhooks").Index(i)
		checkWebhook(&r, path, h, l)
		if !l.conditions {
			x.conditions(&r, path.Child("matchConditions"), h.MatchConditions, false)
		}
		checkReviewVersions(&r, path.Child("admissionReviewVersions"), h.AdmissionReviewVersions, l)
		if h.Name != "" && names.Has(h.Name) && !l.names {
			r.Duplicate(path.Child("name"), h.Name)
		}
		names.Insert(h.Name)
	}
	return r.Errors
}

func checkWebhook(r *report.Report, path *field.Path, h *hook, l leniency) {
	r.Add(validation.IsFullyQualifiedName(path.Child("name"), h.Name)...)
	for i := range h.Rules {
		checkOperations(r, path.Child("rules").Index(i), &h.Rules[i])
	}
	if h.FailurePolicy != nil {
		checkFailurePolicy(r, path.Child("failurePolicy"), *h.FailurePolicy)
	}
	if h.MatchPolicy != nil {
		checkMatchPolicy(r, path.Child("matchPolicy"), *h.MatchPolicy)
	}
	allowed := sideEffects(l)
	if h.SideEffects == nil {
		r.Required(path.Child("sideEffects"), "must specify one of "+joined(allowed))
	} else {
		report.OneOf(r, path.Child("sideEffects"), *h.SideEffects, allowed...)
	}
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > maxTimeoutSeconds) {
		r.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds")
	}
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: l.selectors}
	if h.NamespaceSelector != nil {
		r.Add(metav1validation.ValidateLabelSelector(h.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	}
	if h.ObjectSelector != nil {
		r.Add(metav1validation.ValidateLabelSelector(h.ObjectSelector, options, path.Child("objectSelector"))...)
	}
	if h.reinvocation != nil {
		checkReinvocation(r, path.Child("reinvocationPolicy"), *h.reinvocation)
	}
	checkClient(r, path.Child("clientConfig"), &h.ClientConfig)
}

func checkClient(r *report.Report, path *field.Path, c *admissionregistrationv1.WebhookClientConfig) {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		r.Required(path, "exactly one of url or service is required")
	case c.URL != nil:
		r.Add(webhook.ValidateWebhookURL(path.Child("url"), *c.URL, true)...)
	default:
		port := servicePort
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		r.Add(webhook.ValidateWebhookService(path.Child("service"), c.Service.Name, c.Service.Namespace,
			c.Service.Path, port)...)
	}
}

func checkReviewVersions(r *report.Report, path *field.Path, versions []string, l leniency) {
	if len(versions) == 0 {
		r.Required(path, "must specify one of "+joined(reviewVersions()))
		return
	}
	seen := sets.New[string]()
	for i, v := range versions {
		if seen.Has(v) {
			r.Invalid(path.Index(i), v, "duplicate version")
			continue
		}
		seen.Insert(v)
		r.Each(path.Index(i), v, validation.IsDNS1035Label(v))
	}
	if !l.versions && !slices.ContainsFunc(versions, understood) {
		r.Invalid(path, versions, "must include at least one of "+joined(reviewVersions()))
	}
}

func joined[T ~string](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return strings.Join(out, ", ")
}

func validatingWebhookConfigurationCells(c *admissionregistrationv1.ValidatingWebhookConfiguration,
	env resource.CellEnv) []any {
	return []any{c.Name, int64(len(c.Webhooks)), env.Age(c.CreationTimestamp)}
}

func mutatingWebhookConfigurationCells(c *admissionregistrationv1.MutatingWebhookConfiguration,
	env resource.CellEnv) []any {
	return []any{c.Name, int64(len(c.Webhooks)), env.Age(c.CreationTimestamp)}
}
