// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// mutatingWebhookConfigurationRow declares mutatingwebhookconfigurations.
func mutatingWebhookConfigurationRow(j *judge) *resource.Row {
	return resource.Of[admissionregistrationv1.MutatingWebhookConfigurationList](resource.Kind[*admissionregistrationv1.MutatingWebhookConfiguration]{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration",
		Categories: []string{"api-extensions"},

		MetaOnUpdate:  resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Default:       defaultMutatingWebhookConfiguration,
		PrepareCreate: strategy.StartGeneration[admissionregistrationv1.MutatingWebhookConfiguration],
		PrepareUpdate: strategy.CountSpec(func(o *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
			return &o.Webhooks
		}),
		AnyFinalizer:   true,
		Validate:       j.mutatingWebhooks,
		ValidateUpdate: j.mutatingWebhooksUpdate,
		Warnings:       warnStatic[admissionregistrationv1.MutatingWebhookConfiguration],

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration"},
			column.Age(),
		},
		Cells: mutatingWebhookConfigurationCells,
	})
}
