// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxPolicyRules = 20
	maxPatterns    = 20
	maxExitCodes   = 255
	maxIndexes     = 64 * 1024 // maximum length of a list of indexes, in bytes
)

func failureActions() []batchv1.PodFailurePolicyAction {
	return []batchv1.PodFailurePolicyAction{
		batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
	}
}

func checkFailurePolicy(r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	rules := spec.PodFailurePolicy.Rules
	if len(rules) > maxPolicyRules {
		r.TooMany(path, len(rules), maxPolicyRules)
	}
	for i := range rules {
		rule, at := &rules[i], path.Index(i)
		switch rule.Action {
		case "":
			r.Required(at.Child("action"), fmt.Sprintf("valid values: %q", failureActions()))
		case batchv1.PodFailurePolicyActionFailIndex:
			if spec.BackoffLimitPerIndex == nil {
				r.Invalid(at.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set")
			}
		default:
			report.OneOf(r, at.Child("action"), rule.Action, failureActions()...)
		}
		if rule.OnExitCodes != nil {
			checkExitCodes(r, spec, rule.OnExitCodes, at.Child("onExitCodes"))
		}
		checkPatterns(r, rule.OnPodConditions, at.Child("onPodConditions"))
		if rule.OnExitCodes != nil && len(rule.OnPodConditions) > 0 {
			r.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
		}
		if rule.OnExitCodes == nil && len(rule.OnPodConditions) == 0 {
			r.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func checkPatterns(r *report.Report, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) {
	if len(patterns) > maxPatterns {
		r.TooMany(path, len(patterns), maxPatterns)
	}
	statuses := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
	for i, p := range patterns {
		at := path.Index(i)
		r.QualifiedName(at.Child("type"), string(p.Type))
		if p.Status == "" {
			r.Required(at.Child("status"), fmt.Sprintf("valid values: %q", statuses))
		} else {
			report.OneOf(r, at.Child("status"), p.Status, statuses...)
		}
	}
}

func checkExitCodes(r *report.Report, spec *batchv1.JobSpec,
	codes *batchv1.PodFailurePolicyOnExitCodesRequirement, path *field.Path) {
	operators := []batchv1.PodFailurePolicyOnExitCodesOperator{batchv1.PodFailurePolicyOnExitCodesOpIn,
		batchv1.PodFailurePolicyOnExitCodesOpNotIn}
	if codes.Operator == "" {
		r.Required(path.Child("operator"), fmt.Sprintf("valid values: %q", operators))
	} else {
		report.OneOf(r, path.Child("operator"), codes.Operator, operators...)
	}
	if name := codes.ContainerName; name != nil && !hasContainer(&spec.Template.Spec, *name) {
		r.Invalid(path.Child("containerName"), *name,
			"must be one of the container or initContainer names in the pod template")
	}
	values := path.Child("values")
	if len(codes.Values) == 0 {
		r.Invalid(values, codes.Values, "at least one value is required")
	} else if len(codes.Values) > maxExitCodes {
		r.TooMany(values, len(codes.Values), maxExitCodes)
	}
	seen := sets.New[int32]()
	for i, code := range codes.Values {
		if codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0 {
			r.Invalid(values.Index(i), code, "must not be 0 for the In operator")
		}
		if seen.Has(code) {
			r.Duplicate(values.Index(i), code)
		}
		seen.Insert(code)
	}
	if !slices.IsSorted(codes.Values) {
		r.Invalid(values, codes.Values, "must be ordered")
	}
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for place, c := range podspec.Containers(spec, nil) {
		if place.Role != podspec.Ephemeral && c.Name == name {
			return true
		}
	}
	return false
}

func checkSuccessPolicy(r *report.Report, spec *batchv1.JobSpec, path *field.Path) {
	rules := spec.SuccessPolicy.Rules
	if len(rules) == 0 {
		r.Required(path, "at least one rules must be specified when the successPolicy is specified")
	}
	if len(rules) > maxPolicyRules {
		r.TooMany(path, len(rules), maxPolicyRules)
	}
	completions := int32(0)
	if spec.Completions != nil {
		completions = *spec.Completions
	}
	for i := range rules {
		checkSuccessRule(r, &rules[i], completions, path.Index(i))
	}
}

func checkSuccessRule(r *report.Report, rule *batchv1.SuccessPolicyRule, completions int32, at *field.Path) {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		r.Required(at, "at least one of succeededCount or succeededIndexes must be specified")
	}
	total := int32(0)
	if indexes := rule.SucceededIndexes; indexes != nil {
		path := at.Child("succeededIndexes")
		if len(*indexes) > maxIndexes {
			r.TooLong(path, maxIndexes)
		}
		var err error
		if total, err = countIndexes(*indexes, completions); err != nil {
			r.Invalid(path, *indexes, fmt.Sprintf("error parsing succeededIndexes: %s", err))
		}
	}
	if count := rule.SucceededCount; count != nil {
		path := at.Child("succeededCount")
		r.NotNegative(path, int64(*count))
		if *count > completions {
			r.Invalid(path, *count,
				fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
		}
		if rule.SucceededIndexes != nil && *count > total {
			r.Invalid(path, *count,
				fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified "+
					"succeededIndexes field)", total))
		}
	}
}

// countIndexes returns the number of indexes in a list such as "1,3-5". It returns an error unless
// the indexes increase and are below completions.
func countIndexes(text string, completions int32) (int32, error) {
	if text == "" {
		return 0, nil
	}
	total, last := int32(0), int32(-1)
	for interval := range strings.SplitSeq(text, ",") {
		limits := strings.Split(interval, "-")
		if len(limits) > 2 {
			return 0, fmt.Errorf("the fragment %q violates the requirement that an index interval can have "+
				"at most two parts separated by '-'", interval)
		}
		first, err := parseIndex(limits[0], completions)
		if err != nil {
			return 0, err
		}
		if last >= first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, first)
		}
		end := first
		if len(limits) == 2 {
			if end, err = parseIndex(limits[1], completions); err != nil {
				return 0, err
			}
			if first >= end {
				return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", first, end)
			}
		}
		total += end - first + 1
		last = end
	}
	return total, nil
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if int64(n) >= int64(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(n), nil
}
