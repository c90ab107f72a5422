// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling declares priority classes, workloads and pod groups.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package scheduling

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		priorityClassRow(),
		podGroupRow(),
		workloadRow(),
	}
}

// priorityClassRow returns the row of the kind table for the resource priorityclasses.
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
			{Name: "PreemptionPolicy", Type: "string",
				Description: schedulingv1.PriorityClass{}.SwaggerDoc()["preemptionPolicy"]},
		},
		Cells: priorityClassCells,
	})
}

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	unset.Point(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

const (
	systemPrefix    = "system-"
	highestForUsers = int32(1000000000)
)

// systemClasses returns the names of the built-in priority classes and their values.
func systemClasses() map[string]int32 {
	return map[string]int32{
		"system-cluster-critical": 2 * highestForUsers,
		"system-node-critical":    2*highestForUsers + 1000,
	}
}

// IsSystemClass reports whether name is the name of a built-in priority class.
func IsSystemClass(name string) bool {
	_, ok := systemClasses()[name]
	return ok
}

func validatePriorityClass(_ context.Context, c *schedulingv1.PriorityClass) field.ErrorList {
	var r report.Report
	if strings.HasPrefix(c.Name, systemPrefix) {
		if problem := systemProblem(c); problem != "" {
			r.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPrefix+
				"' prefix are reserved for system use only. error: "+problem)
		}
	} else if c.Value > highestForUsers {
		r.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestForUsers))
	}
	if p := c.PreemptionPolicy; p != nil {
		report.OneOfRequired(&r, field.NewPath("preemptionPolicy"), *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	return r.Errors
}

func systemProblem(c *schedulingv1.PriorityClass) string {
	value, known := systemClasses()[c.Name]
	switch {
	case !known:
		return fmt.Sprintf("%v is not a known system priority class", c.Name)
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be %v", c.Name, false)
	}
	return ""
}

func validatePriorityClassUpdate(_ context.Context, c, old *schedulingv1.PriorityClass) field.ErrorList {
	var r report.Report
	if c.Value != old.Value {
		r.Forbidden(field.NewPath("value"), "may not be changed in an update.")
	}
	r.Immutable(field.NewPath("preemptionPolicy"), c.PreemptionPolicy, old.PreemptionPolicy)
	return r.Errors
}

// priorityClassHooks reject the deletion of built-in priority classes, because system pods cannot
// be created without them. Kubernetes rejects it for a delete of one object, but not for
// deletecollection.
func priorityClassHooks() resource.Hooks[*schedulingv1.PriorityClass] {
	return resource.Hooks[*schedulingv1.PriorityClass]{
		BeforeDelete: func(_ context.Context, class *schedulingv1.PriorityClass, _ *metav1.DeleteOptions) error {
			if !IsSystemClass(class.Name) {
				return nil
			}
			return apierrors.NewForbidden(schedulingv1.Resource("priorityclasses"), class.Name,
				errors.New("this is a system priority class and cannot be deleted"))
		},
	}
}

func priorityClassCells(c *schedulingv1.PriorityClass, env resource.CellEnv) []any {
	return []any{c.Name, int64(c.Value), c.GlobalDefault, env.Age(c.CreationTimestamp),
		column.Deref(c.PreemptionPolicy, "")}
}
