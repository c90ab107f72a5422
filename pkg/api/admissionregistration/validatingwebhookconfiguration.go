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

// validatingWebhookConfigurationRow declares validatingwebhookconfigurations.
func validatingWebhookConfigurationRow(j *judge) *resource.Row {
	return resource.Of[admissionregistrationv1.ValidatingWebhookConfigurationList](resource.Kind[*admissionregistrationv1.ValidatingWebhookConfiguration]{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration",
		Categories: []string{"api-extensions"},

		MetaOnUpdate:  resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Default:       defaultValidatingWebhookConfiguration,
		PrepareCreate: strategy.StartGeneration[admissionregistrationv1.ValidatingWebhookConfiguration],
		PrepareUpdate: strategy.CountSpec(func(o *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
			return &o.Webhooks
		}),
		AnyFinalizer:   true,
		Validate:       j.validatingWebhooks,
		ValidateUpdate: j.validatingWebhooksUpdate,
		Warnings:       warnStatic[admissionregistrationv1.ValidatingWebhookConfiguration],

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration"},
			column.Age(),
		},
		Cells: validatingWebhookConfigurationCells,
	})
}
