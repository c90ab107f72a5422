// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// priorityClassRow declares priorityclasses.
func priorityClassRow() *resource.Row {
	return resource.Of[schedulingv1.PriorityClassList](resource.Kind[*schedulingv1.PriorityClass]{
		Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses", Kind: "PriorityClass",
		ShortNames: []string{"pc"},

		Default:                  defaultPriorityClass,
		PrepareCreate:            strategy.StartGeneration[schedulingv1.PriorityClass],
		Validate:                 validatePriorityClass,
		ValidateUpdate:           validatePriorityClassUpdate,
		AllowUnconditionalUpdate: true,
		Hooks:                    priorityClassHooks(),

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Value", Type: "integer", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["value"]},
			{Name: "Global-Default", Type: "boolean", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["globalDefault"]},
			column.Age(),
			{Name: "PreemptionPolicy", Type: "string", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["preemptionPolicy"]},
		},
		Cells: priorityClassCells,
	})
}
