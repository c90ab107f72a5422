// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// deviceTaintRuleRow returns the row of the kind table for the resource devicetaintrules.
func deviceTaintRuleRow() *resource.Row {
	parts := strategy.Parts[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleSpec, resourcev1.DeviceTaintRuleStatus](
		func(o *resourcev1.DeviceTaintRule) (*resourcev1.DeviceTaintRuleSpec, *resourcev1.DeviceTaintRuleStatus) {
			return &o.Spec, &o.Status
		})
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return resource.Of[resourcev1.DeviceTaintRuleList](resource.Kind[*resourcev1.DeviceTaintRule]{
		Group: "resource.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1", Introduced: 37}}, ruleVersions()...),
		Resource: "devicetaintrules", Kind: "DeviceTaintRule",

		PrepareCreate: func(ctx context.Context, r *resourcev1.DeviceTaintRule) {
			stampTaint(ctx, &r.Spec.Taint)
			parts.Create(ctx, r)
		},
		PrepareUpdate: func(ctx context.Context, r, old *resourcev1.DeviceTaintRule) {
			stampRule(ctx, r, old)
			parts.Update(ctx, r, old)
		},
		ResetFields:    []string{"status"},
		Validate:       validateRule,
		ValidateUpdate: validateRuleUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Key", Type: "string", Description: doc["key"]},
			{Name: "Value", Type: "string", Description: doc["value"]},
			{Name: "Effect", Type: "string", Description: doc["effect"]},
			{Name: "TimeAdded", Type: "string", Description: doc["timeAdded"]},
			column.Age(),
		},
		Cells: ruleCells,

		Subresources: []resource.Sub[*resourcev1.DeviceTaintRule]{
			{Subresource: strategy.View("status", "metadata", "spec"), PrepareUpdate: parts.KeepSpecAndMeta,
				ValidateUpdate: validateRuleStatus},
		},
	})
}

// stampRule sets the time of a rule's taint to the time of the request if the taint has no time, or
// if the effect has changed and the client has left the time as it was. So the time is that at which
// the effect began.
func stampRule(ctx context.Context, r, old *resourcev1.DeviceTaintRule) {
	taint, was := &r.Spec.Taint, &old.Spec.Taint
	if taint.Effect != was.Effect && taint.TimeAdded.Equal(was.TimeAdded) {
		taint.TimeAdded = nil
	}
	stampTaint(ctx, taint)
}

func ruleCells(r *resourcev1.DeviceTaintRule, env resource.CellEnv) []any {
	added, taint := "", &r.Spec.Taint
	if taint.TimeAdded != nil {
		added = env.Age(*taint.TimeAdded)
	}
	return []any{r.Name, taint.Key, taint.Value, string(taint.Effect), added, env.Age(r.CreationTimestamp)}
}

func validateRule(_ context.Context, rule *resourcev1.DeviceTaintRule) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	if s, at := rule.Spec.DeviceSelector, path.Child("deviceSelector"); s != nil {
		if s.Driver != nil {
			checkDriver(&r, at.Child("driver"), *s.Driver)
		}
		if s.Pool != nil {
			checkPoolName(&r, at.Child("pool"), *s.Pool)
		}
		if s.Device != nil {
			r.Label(at.Child("device"), *s.Device)
		}
	}
	checkTaint(&r, path.Child("taint"), &rule.Spec.Taint)
	return r.Errors
}

func validateRuleUpdate(ctx context.Context, rule, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	return validateRule(ctx, rule)
}

func validateRuleStatus(_ context.Context, rule, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	var r report.Report
	path := field.NewPath("status", "conditions")
	r.Add(metav1validation.ValidateConditions(rule.Status.Conditions, path)...)
	if n := len(rule.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		r.TooMany(path, n, resourcev1.DeviceTaintRuleStatusMaxConditions)
	}
	return r.Errors
}
