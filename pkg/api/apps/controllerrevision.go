// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
)

// controllerRevisionRow returns the row of the kind table for the resource controllerrevisions.
func controllerRevisionRow() *resource.Row {
	return resource.Of[appsv1.ControllerRevisionList](resource.Kind[*appsv1.ControllerRevision]{
		Group: "apps", Version: "v1", Resource: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true,

		MetaOnUpdate:             resource.CheckNameAndFinalizers,
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

func validateControllerRevision(_ context.Context, c *appsv1.ControllerRevision) field.ErrorList {
	var r report.Report
	r.NotNegative(field.NewPath("revision"), c.Revision)
	path := field.NewPath("data")
	if c.Data.Raw == nil {
		r.Required(path, "data is mandatory")
		return r.Errors
	}
	var v any
	if err := json.Unmarshal(c.Data.Raw, &v); err != nil {
		r.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))
	} else if v == nil {
		r.Required(path, "data is mandatory")
	} else if _, ok := v.(map[string]any); !ok {
		r.Required(path, "data must be a valid JSON object")
	}
	return r.Errors
}

func validateControllerRevisionUpdate(_ context.Context, c, old *appsv1.ControllerRevision) field.ErrorList {
	var r report.Report
	r.NotNegative(field.NewPath("revision"), c.Revision)
	r.Immutable(field.NewPath("data"), c.Data, old.Data)
	return r.Errors
}

func controllerRevisionCells(r *appsv1.ControllerRevision, env resource.CellEnv) []any {
	controller := column.None
	if ref := metav1.GetControllerOf(r); ref != nil {
		kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
		controller = strings.ToLower(kind.String()) + "/" + ref.Name
	}
	return []any{r.Name, controller, r.Revision, env.Age(r.CreationTimestamp)}
}
