// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"keelson.dev/keelson/pkg/api/report"
)

// checkSlice calls check for every item of list. If the list has more than limit items, checkSlice
// reports this and checks no item. A negative limit means that there is no limit.
func checkSlice[T any](r *report.Report, path *field.Path, list []T, limit int, check func(*field.Path, *T)) {
	if limit >= 0 && len(list) > limit {
		r.TooMany(path, len(list), limit)
		return
	}
	for i := range list {
		check(path.Index(i), &list[i])
	}
}

// checkSet does the same as checkSlice, and also reports items for which key returns the same value
// as for an earlier item.
func checkSet[T any, K comparable](r *report.Report, path *field.Path, list []T, limit int, key func(*T) K,
	check func(*field.Path, *T)) {
	checkSlice(r, path, list, limit, check)
	if limit >= 0 && len(list) > limit {
		return
	}
	seen := sets.New[K]()
	for i := range list {
		k := key(&list[i])
		if seen.Has(k) {
			r.Duplicate(path.Index(i), k)
		}
		seen.Insert(k)
	}
}

func same[T any](v *T) T { return *v }

// checkMap calls key and value for every entry of m, in the order of the keys. If m has more than
// limit entries, checkMap only reports this. A negative limit means that there is no limit. In
// paths, keys are shortened to the length shown.
func checkMap[K ~string, V any](r *report.Report, path *field.Path, m map[K]V, limit, shown int,
	key func(*field.Path, string), value func(*field.Path, V)) {
	if limit >= 0 && len(m) > limit {
		r.TooMany(path, len(m), limit)
		return
	}
	for _, k := range report.Keys(m) {
		key(path, string(k))
		value(path.Key(shorten(string(k), shown)), m[k])
	}
}

// shorten replaces the middle of s by dots if s is longer than limit bytes.
func shorten(s string, limit int) string {
	const gap, least = "...", 16
	limit = max(limit, least)
	if len(s) <= limit {
		return s
	}
	rest := limit - len(gap)
	return s[:(rest+1)/2] + gap + s[len(s)-rest/2:]
}

func checkDriver(r *report.Report, path *field.Path, name string) {
	if name == "" {
		r.Required(path, "")
		return
	}
	if len(name) > resourcev1.DriverNameMaxLength {
		r.TooLong(path, resourcev1.DriverNameMaxLength)
	}
	r.Each(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}

func checkPoolName(r *report.Report, path *field.Path, name string) {
	if name == "" {
		r.Required(path, "")
		return
	}
	if len(name) > resourcev1.PoolNameMaxLength {
		r.TooLong(path, resourcev1.PoolNameMaxLength)
	}
	for part := range strings.SplitSeq(name, "/") {
		r.Subdomain(path, part)
	}
}

func checkUID(r *report.Report, path *field.Path, uid string) {
	if err := uuid.Validate(uid); err != nil {
		r.Invalid(path, uid, fmt.Sprintf("error validating uid: %v", err))
	} else if len(uid) != 36 || uid != strings.ToLower(uid) {
		r.Invalid(path, uid, "uid must be in RFC 4122 normalized form, "+
			"`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters")
	}
}

// checkName validates the name of an attribute or capacity. The name is an identifier, or a domain
// and an identifier with a slash between them. Without a domain, the driver's domain applies.
func checkName(r *report.Report, path *field.Path, name string) {
	domain, id, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		checkIdentifier(r, path, name)
		return
	case strings.Contains(id, "/"):
		return // Kubernetes does not report a second slash either
	case domain == "":
		r.Invalid(path, "", "the domain must not be empty")
	default:
		checkDriver(r, path, domain)
	}
	if id == "" {
		r.Invalid(path, "", "the name must not be empty")
	} else {
		checkIdentifier(r, path, id)
	}
}

func checkFullName(r *report.Report, path *field.Path, name resourcev1.FullyQualifiedName) {
	checkName(r, path, string(name))
	if !strings.Contains(string(name), "/") {
		r.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")
	}
}

func checkIdentifier(r *report.Report, path *field.Path, id string) {
	if len(id) > resourcev1.DeviceMaxIDLength {
		r.TooLong(path, resourcev1.DeviceMaxIDLength)
	}
	r.Each(path, id, content.IsCIdentifier(id))
}

// checkRaw validates opaque parameters, which must be a JSON object. limit is the maximum length in
// bytes. stored is true if the parameters are stored already; then their length is not checked.
func checkRaw(r *report.Report, path *field.Path, raw runtime.RawExtension, limit int, stored bool) {
	const omitted = "<value omitted>"
	var v any
	switch {
	case len(raw.Raw) == 0:
		r.Required(path, "")
		return
	case !stored && len(raw.Raw) > limit:
		r.TooLong(path, limit)
		return
	}
	if err := json.Unmarshal(raw.Raw, &v); err != nil {
		r.Invalid(path, omitted, fmt.Sprintf("error parsing data as JSON: %v", err))
		return
	}
	if v == nil {
		r.Required(path, "")
	} else if _, ok := v.(map[string]any); !ok {
		r.Invalid(path, omitted, "must be a valid JSON object")
	}
}

// checkSelectors validates CEL expressions that select devices. stored is true if the expressions
// are stored already. Such expressions were valid when they were stored, and are not checked again.
func checkSelectors(r *report.Report, path *field.Path, list []resourcev1.DeviceSelector, stored bool) {
	checkSlice(r, path, list, resourcev1.DeviceSelectorsMaxSize, func(at *field.Path, s *resourcev1.DeviceSelector) {
		if s.CEL == nil {
			r.Required(at.Child("cel"), "")
			return
		}
		checkExpression(r, at.Child("cel", "expression"), s.CEL.Expression, stored)
	})
}

func checkExpression(r *report.Report, path *field.Path, expression string, stored bool) {
	if stored {
		return
	}
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		r.TooLong(path, resourcev1.CELSelectorExpressionMaxLength)
		return
	}
	kind := environment.NewExpressions
	result := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).CompileCELExpression(
		expression, dracel.Options{EnvType: &kind})
	switch {
	case result.Error != nil:
		r.Expression(path, expression, result.Error)
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		r.Forbidden(path, "too complex, exceeds cost limit")
	}
}

func checkTaint(r *report.Report, path *field.Path, t *resourcev1.DeviceTaint) {
	r.Add(metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	if t.Value != "" {
		r.Each(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
	}
	report.OneOfRequired(r, path.Child("effect"), t.Effect, taintEffects()...)
}

func taintEffects() []resourcev1.DeviceTaintEffect {
	return []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute,
		resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}
}

func checkToleration(r *report.Report, path *field.Path, t *resourcev1.DeviceToleration) {
	if t.Key != "" {
		r.Add(metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			r.Invalid(path.Child("value"), t.Value, "must be empty for operator `Exists`")
		}
	case resourcev1.DeviceTolerationOpEqual:
		r.Each(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
	default:
		report.OneOfRequired(r, path.Child("operator"), t.Operator, resourcev1.DeviceTolerationOpEqual,
			resourcev1.DeviceTolerationOpExists)
	}
	if t.Effect != "" {
		report.OneOf(r, path.Child("effect"), t.Effect, taintEffects()...)
	}
}

// checkBinding validates the names of two lists of conditions: those that must be true before a pod
// is bound to a node for this device, and those that mean that the device failed.
func checkBinding(r *report.Report, path *field.Path, conditions, failures []string) {
	good, bad := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	label := func(at *field.Path, name *string) { r.Add(metav1validation.ValidateLabelName(*name, at)...) }
	checkSlice(r, good, conditions, resourcev1.BindingConditionsMaxSize, label)
	checkSlice(r, bad, failures, resourcev1.BindingFailureConditionsMaxSize, label)
	hopes, fears := sets.New[string](), sets.New[string]()
	for i, c := range conditions {
		if hopes.Has(c) {
			r.Duplicate(good.Index(i), c)
		}
		hopes.Insert(c)
	}
	for i, c := range failures {
		if fears.Has(c) {
			r.Duplicate(bad.Index(i), c)
		}
		fears.Insert(c)
		if hopes.Has(c) {
			r.Invalid(bad.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions")
		}
	}
	if len(conditions) == 0 && len(failures) > 0 {
		r.Invalid(good, conditions, "bindingConditions are required to use bindingFailureConditions")
	}
	if len(failures) == 0 && len(conditions) > 0 {
		r.Invalid(bad, failures, "bindingFailureConditions are required to use bindingConditions")
	}
}
