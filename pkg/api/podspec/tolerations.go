// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// ValidateTolerations judges the taints that pods say they stand.
func ValidateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var r report.Report
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		if t.Key != "" {
			r.LabelName(at.Child("key"), t.Key)
		} else if t.Operator != corev1.TolerationOpExists {
			r.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			r.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		checkTolerationValue(&r, t, at.Child("operator"))
		if t.Effect != "" {
			ValidateTaintEffect(&r, t.Effect, at.Child("effect"))
		}
	}
	return r.Errors
}

func checkTolerationValue(r *report.Report, t *corev1.Toleration, at *field.Path) {
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if reasons := naming.IsValidLabelValue(t.Value); len(reasons) > 0 {
			r.Invalid(at, t.Value, strings.Join(reasons, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			r.Invalid(at, t.Value, "value must be empty when `operator` is 'Exists'")
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		// Known, but off by default: the list still names them.
		r.Add(field.NotSupported(at, t.Operator, []corev1.TolerationOperator{
			corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt,
		}))
	default:
		report.OneOf(r, at, t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
}

// ValidateTaintEffect judges what a taint does.
func ValidateTaintEffect(r *report.Report, effect corev1.TaintEffect, path *field.Path) {
	report.OneOf(r, path, effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}
