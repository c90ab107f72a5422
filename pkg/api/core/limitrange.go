// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// limitRangeRow returns the row of the kind table for the resource limitranges.
func limitRangeRow() *resource.Row {
	return resource.Of[corev1.LimitRangeList](resource.Kind[*corev1.LimitRange]{
		Group: "", Version: "v1", Resource: "limitranges", Kind: "LimitRange", Namespaced: true,
		ShortNames: []string{"limits"},

		Default:                  defaultLimitRange,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            prepareLimitRangeCreate,
		Validate:                 validateLimitRange,
		ValidateUpdate:           validateLimitRangeUpdate,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	})
}

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			defaultContainerLimits(item)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest,
			item.MaxLimitRequestRatio} {
			podspec.Milli(list)
		}
	}
}

// defaultContainerLimits sets default limits that are missing to the maximum. It sets default
// requests that are missing to the default limit or, if there is none, to the minimum.
func defaultContainerLimits(item *corev1.LimitRangeItem) {
	if item.Default == nil {
		item.Default = corev1.ResourceList{}
	}
	if item.DefaultRequest == nil {
		item.DefaultRequest = corev1.ResourceList{}
	}
	inherit(item.Default, item.Max)
	inherit(item.DefaultRequest, item.Default)
	inherit(item.DefaultRequest, item.Min)
}

func inherit(to, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, ok := to[name]; !ok {
			to[name] = quantity.DeepCopy()
		}
	}
}

// prepareLimitRangeCreate generates a name if the client has set none. Limit ranges are the only
// kind of object that clients can create without a name.
func prepareLimitRangeCreate(_ context.Context, l *corev1.LimitRange) {
	if l.Name == "" {
		l.Name = string(l.UID)
	}
}

func validateLimitRange(_ context.Context, l *corev1.LimitRange) field.ErrorList {
	var r report.Report
	types := sets.New[corev1.LimitType]()
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		checkLimitType(&r, item.Type, at.Child("type"))
		if types.Has(item.Type) {
			r.Duplicate(at.Child("type"), item.Type)
		}
		types.Insert(item.Type)
		checkLimitNames(&r, item, at)
		names := sets.New[corev1.ResourceName]()
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest,
			item.MaxLimitRequestRatio} {
			names.Insert(report.Keys(list)...)
		}
		for _, name := range slices.Sorted(slices.Values(names.UnsortedList())) {
			checkLimitOrder(&r, item, name, at)
			checkLimitRatio(&r, item, name, at)
		}
	}
	return r.Errors
}

func validateLimitRangeUpdate(ctx context.Context, l, _ *corev1.LimitRange) field.ErrorList {
	return validateLimitRange(ctx, l)
}

func checkLimitType(r *report.Report, kind corev1.LimitType, path *field.Path) {
	reasons := naming.IsQualifiedName(string(kind))
	r.Each(path, kind, reasons)
	known := kind == corev1.LimitTypePod || kind == corev1.LimitTypeContainer ||
		kind == corev1.LimitTypePersistentVolumeClaim
	if len(reasons) == 0 && podspec.Unqualified(corev1.ResourceName(kind)) && !known {
		r.Invalid(path, kind, "must be a standard limit type or fully qualified")
	}
}

func checkLimitNames(r *report.Report, item *corev1.LimitRangeItem, at *field.Path) {
	check := func(list corev1.ResourceList, field string) {
		for _, name := range report.Keys(list) {
			path := at.Child(field).Key(string(name))
			if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
				r.Add(podspec.ValidateContainerResourceName(name, path)...)
			} else {
				r.Add(podspec.ValidateResourceName(name, path)...)
			}
		}
	}
	check(item.Max, "max")
	check(item.Min, "min")
	if item.Type == corev1.LimitTypePod {
		if len(item.Default) > 0 {
			r.Forbidden(at.Child("default"), "may not be specified when `type` is 'Pod'")
		}
		if len(item.DefaultRequest) > 0 {
			r.Forbidden(at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'")
		}
	} else {
		check(item.Default, "default")
		check(item.DefaultRequest, "defaultRequest")
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		if _, most := item.Max[corev1.ResourceStorage]; !least && !most {
			r.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	check(item.MaxLimitRequestRatio, "maxLimitRequestRatio")
}

// checkLimitOrder requires min <= default request <= default limit <= max.
func checkLimitOrder(r *report.Report, item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) {
	above := func(a, b corev1.ResourceList) (x, y apiresource.Quantity, is bool) {
		x, okA := a[name]
		y, okB := b[name]
		return x, y, okA && okB && x.Cmp(y) > 0
	}
	say := func(child string, value apiresource.Quantity, format string, x, y apiresource.Quantity) {
		r.Invalid(at.Child(child).Key(string(name)), value, fmt.Sprintf(format, x.String(), y.String()))
	}
	limits, requests := item.Default, item.DefaultRequest
	if item.Type == corev1.LimitTypePod {
		limits, requests = nil, nil
	}
	if x, y, is := above(item.Min, item.Max); is {
		say("min", x, "min value %s is greater than max value %s", x, y)
	}
	if x, y, is := above(item.Min, requests); is {
		say("defaultRequest", y, "min value %s is greater than default request value %s", x, y)
	}
	if x, y, is := above(requests, item.Max); is {
		say("defaultRequest", x, "default request value %s is greater than max value %s", x, y)
	}
	if x, y, is := above(requests, limits); is {
		say("defaultRequest", x, "default request value %s is greater than default limit value %s", x, y)
	}
	if x, y, is := above(item.Min, limits); is {
		say("default", x, "min value %s is greater than default value %s", x, y)
	}
	if x, y, is := above(limits, item.Max); is {
		say("default", y, "default value %s is greater than max value %s", x, y)
	}
	limit, limited := limits[name]
	request, requested := requests[name]
	if !podspec.Overcommits(name) && limited && requested && limit.Cmp(request) != 0 {
		r.Invalid(at.Child("defaultRequest").Key(string(name)), request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name))
	}
}

func checkLimitRatio(r *report.Report, item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return
	}
	path := at.Child("maxLimitRequestRatio").Key(string(name))
	if ratio.Cmp(*apiresource.NewQuantity(1, apiresource.DecimalSI)) < 0 {
		r.Invalid(path, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String()))
	}
	least, hasMin := item.Min[name]
	most, hasMax := item.Max[name]
	if !hasMin || !hasMax {
		return
	}
	// The ratio is compared with max/min. The values are in thousandths, or in whole units if one
	// of them is too large for thousandths in 64 bits.
	asked, low, high := float64(ratio.Value()), least.Value(), most.Value()
	if max(ratio.Value(), low, high) < apiresource.MaxMilliValue {
		asked, low, high = float64(ratio.MilliValue())/1000, least.MilliValue(), most.MilliValue()
	}
	if highest := float64(high) / float64(low); asked > highest {
		r.Invalid(path, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), highest))
	}
}
