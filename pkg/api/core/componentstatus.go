// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// componentStatusRow returns the row of the kind table for the resource componentstatuses.
func componentStatusRow() *resource.Row {
	return resource.Of[corev1.ComponentStatusList](resource.Kind[*corev1.ComponentStatus]{
		Group: "", Version: "v1", Resource: "componentstatuses", Kind: "ComponentStatus",
		ShortNames: []string{"cs"},
		Verbs:      []string{"get", "list"},
		Computed:   true,
		Versions:   []resource.Version{{Name: "v1", Deprecated: "v1 ComponentStatus is deprecated in v1.19+"}},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "Status of the component conditions"},
			{Name: "Message", Type: "string", Description: "Message of the component conditions"},
			{Name: "Error", Type: "string", Description: "Error of the component conditions"},
		},
		Cells: componentStatusCells,
	})
}

func componentStatusCells(c *corev1.ComponentStatus, _ resource.CellEnv) []any {
	for _, condition := range c.Conditions {
		if condition.Type != corev1.ComponentHealthy {
			continue
		}
		status := "Unhealthy"
		if condition.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
		return []any{c.Name, status, condition.Message, condition.Error}
	}
	return []any{c.Name, "Unknown", "", ""}
}
