// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// mutatingAdmissionPolicyRow returns the row of the kind table for the resource
// mutatingadmissionpolicies.
func mutatingAdmissionPolicyRow(v *validator, check CheckParams) *resource.Row {
	return resource.Of[admissionregistrationv1.MutatingAdmissionPolicyList](
		resource.Kind[*admissionregistrationv1.MutatingAdmissionPolicy]{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies",
			Kind:       "MutatingAdmissionPolicy",
			Categories: []string{"api-extensions"},

			MetaOnUpdate:  resource.CheckNameAndFinalizers,
			Default:       defaultMutatingAdmissionPolicy,
			PrepareCreate: strategy.StartGeneration[admissionregistrationv1.MutatingAdmissionPolicy],
			PrepareUpdate: strategy.CountSpec(
				func(o *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
					return &o.Spec
				}),
			AnyFinalizer:   true,
			Validate:       validated(check, unreserved(v.mutatingPolicy)),
			ValidateUpdate: validatedUpdate(check, v.mutatingPolicyUpdate),

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "Mutations", Type: "integer",
					Description: "Mutation indicates the number of mutations rules defined in this configuration"},
				{Name: "ParamKind", Type: "string",
					Description: "ParamKind specifies the kind of resources used to parameterize this policy"},
				column.Age(),
			},
			Cells: mutatingAdmissionPolicyCells,
		})
}

func defaultMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	unset.Point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

func (v *validator) mutatingPolicy(_ context.Context,
	p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	return v.mutating(p, nil)
}

func (v *validator) mutatingPolicyUpdate(_ context.Context, p,
	old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	return v.mutating(p, old)
}

// mutating validates a mutating admission policy. old is nil if the policy is new.
func (v *validator) mutating(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	var r report.Report
	spec, path := &p.Spec, field.NewPath("spec")
	x, err := v.composing()
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	keep := false
	if old != nil {
		x.keepMutating(&old.Spec)
		keep = sameConditions(spec.ParamKind, old.Spec.ParamKind, spec.MatchConditions, old.Spec.MatchConditions)
	}
	checkPolicy(&r, path, spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints)
	if spec.MatchConstraints != nil {
		checkMutable(&r, path.Child("matchConstraints"), spec.MatchConstraints)
	}
	x.params = spec.ParamKind != nil
	if !keep {
		x.conditions(&r, path.Child("matchConditions"), spec.MatchConditions, x.params)
	}
	x.variables(&r, path.Child("variables"), spec.Variables)
	if len(spec.Mutations) == 0 {
		r.Required(path.Child("mutations"), "mutations must contain at least one item")
	}
	for i := range spec.Mutations {
		x.mutation(&r, path.Child("mutations").Index(i), &spec.Mutations[i])
	}
	if spec.ReinvocationPolicy == "" {
		r.Required(path.Child("reinvocationPolicy"), "")
	} else {
		checkReinvocation(&r, path.Child("reinvocationPolicy"), spec.ReinvocationPolicy)
	}
	return r.Errors
}

func (x *expressions) keepMutating(old *admissionregistrationv1.MutatingAdmissionPolicySpec) {
	x.keepConditions(old.MatchConditions)
	for _, m := range old.Mutations {
		if m.ApplyConfiguration != nil {
			x.stored.Insert(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			x.stored.Insert(m.JSONPatch.Expression)
		}
	}
}

func (x *expressions) mutation(r *report.Report, path *field.Path, m *admissionregistrationv1.Mutation) {
	jsonPatch, apply := path.Child("jsonPatch"), path.Child("applyConfiguration")
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			r.Required(jsonPatch, "must be specified when patchType is JSONPatch")
		} else {
			x.patch(r, jsonPatch, m.JSONPatch.Expression, func(e string) plugincel.ExpressionAccessor {
				return &patch.JSONPatchCondition{Expression: e}
			})
		}
		if m.ApplyConfiguration != nil {
			r.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch")
		}
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			r.Required(apply, "must be specified when patchType is ApplyConfiguration")
		} else {
			x.patch(r, apply, m.ApplyConfiguration.Expression, func(e string) plugincel.ExpressionAccessor {
				return &patch.ApplyConfigurationCondition{Expression: e}
			})
		}
		if m.JSONPatch != nil {
			r.Invalid(jsonPatch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration")
		}
	default:
		report.OneOfRequired(r, path.Child("patchType"), m.PatchType,
			admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	}
}

func (x *expressions) patch(r *report.Report, path *field.Path, expression string,
	of func(string) plugincel.ExpressionAccessor) {
	at := path.Child("expression")
	if expression = strings.TrimSpace(expression); expression == "" {
		r.Required(at, "")
		return
	}
	x.compile(r, at, of(expression), true)
}

func mutatingAdmissionPolicyCells(p *admissionregistrationv1.MutatingAdmissionPolicy, env resource.CellEnv) []any {
	return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), env.Age(p.CreationTimestamp)}
}
