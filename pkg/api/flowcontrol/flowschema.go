// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// flowSchemaRow declares flowschemas.
func flowSchemaRow() *resource.Row {
	parts := strategy.Parts[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaSpec, flowcontrolv1.FlowSchemaStatus](func(o *flowcontrolv1.FlowSchema) (*flowcontrolv1.FlowSchemaSpec, *flowcontrolv1.FlowSchemaStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[flowcontrolv1.FlowSchemaList](resource.Kind[*flowcontrolv1.FlowSchema]{
		Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas", Kind: "FlowSchema",

		Default:                  defaultFlowSchema,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		Validate:                 validateFlowSchema,
		ValidateUpdate:           validateFlowSchemaUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "PriorityLevel", Type: "string", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]},
			{Name: "MatchingPrecedence", Type: "string", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["matchingPrecedence"]},
			{Name: "DistinguisherMethod", Type: "string", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["distinguisherMethod"]},
			column.Age(),
			{Name: "MissingPL", Type: "string", Description: "references a broken or non-existent PriorityLevelConfiguration"},
		},
		Cells: flowSchemaCells,

		RowOrder: func(a, b *flowcontrolv1.FlowSchema) int { // as they are asked
			return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
		},

		Subresources: []resource.Sub[*flowcontrolv1.FlowSchema]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndAllMeta, ValidateUpdate: validateFlowSchemaStatus},
		},
	})
}
