// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"keelson.dev/keelson/pkg/api/unset"
)

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

func defaultWebhook(config *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
	if config.Service != nil {
		unset.Point(&config.Service.Port, servicePort)
	}
	for i := range rules {
		unset.Point(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func defaultValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	unset.Point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

func defaultMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	unset.Point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

func defaultValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

func defaultMutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
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
