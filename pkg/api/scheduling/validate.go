// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

const (
	systemPrefix    = "system-"
	highestForUsers = int32(1000000000)
)

// systemClasses are the classes that every cluster has.
func systemClasses() map[string]int32 {
	return map[string]int32{
		"system-cluster-critical": 2 * highestForUsers,
		"system-node-critical":    2*highestForUsers + 1000,
	}
}

// IsSystemClass reports whether every cluster has a priority class of this name.
func IsSystemClass(name string) bool {
	_, ok := systemClasses()[name]
	return ok
}

func validatePriorityClass(_ context.Context, c *schedulingv1.PriorityClass) field.ErrorList {
	var r report.Report
	if strings.HasPrefix(c.Name, systemPrefix) {
		if problem := systemProblem(c); problem != "" {
			r.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+problem)
		}
	} else if c.Value > highestForUsers {
		r.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestForUsers))
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
