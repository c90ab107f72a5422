// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// controllerRevisionRow declares controllerrevisions.
func controllerRevisionRow() *resource.Row {
	return resource.Of[appsv1.ControllerRevisionList](resource.Kind[*appsv1.ControllerRevision]{
		Group: "apps", Version: "v1", Resource: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true,

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		Validate:                 validateControllerRevision,
		ValidateUpdate:           validateControllerRevisionUpdate,
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Controller", Type: "string", Description: "Controller of the object"},
			{Name: "Revision", Type: "string", Description: appsv1.ControllerRevision{}.SwaggerDoc()["revision"]},
			column.Age(),
		},
		Cells: controllerRevisionCells,
	})
}
