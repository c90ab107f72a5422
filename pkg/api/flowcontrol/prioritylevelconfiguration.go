// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// priorityLevelConfigurationRow declares prioritylevelconfigurations.
func priorityLevelConfigurationRow() *resource.Row {
	parts := strategy.Parts[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus](func(o *flowcontrolv1.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfigurationSpec, *flowcontrolv1.PriorityLevelConfigurationStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[flowcontrolv1.PriorityLevelConfigurationList](resource.Kind[*flowcontrolv1.PriorityLevelConfiguration]{
		Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations", Kind: "PriorityLevelConfiguration",

		Default:                  defaultPriorityLevelConfiguration,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		Validate:                 validatePriorityLevel,
		ValidateUpdate:           validatePriorityLevelUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderPriorityLevels(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Type", Type: "string", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]},
			{Name: "NominalConcurrencyShares", Type: "string", Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]},
			{Name: "Queues", Type: "string", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queues"]},
			{Name: "HandSize", Type: "string", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["handSize"]},
			{Name: "QueueLengthLimit", Type: "string", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queueLengthLimit"]},
			column.Age(),
		},
		Cells: priorityLevelConfigurationCells,

		Subresources: []resource.Sub[*flowcontrolv1.PriorityLevelConfiguration]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndAllMeta, ValidateUpdate: validatePriorityLevelStatus},
		},
	})
}
