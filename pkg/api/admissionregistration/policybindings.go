// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// validatingAdmissionPolicyBindingRow returns the row of the kind table for the resource
// validatingadmissionpolicybindings.
func validatingAdmissionPolicyBindingRow(check CheckParams) *resource.Row {
	return resource.Of[admissionregistrationv1.ValidatingAdmissionPolicyBindingList](
		resource.Kind[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings",
			Kind:       "ValidatingAdmissionPolicyBinding",
			Categories: []string{"api-extensions"},

			MetaOnUpdate:  resource.CheckNameAndFinalizers,
			Default:       defaultValidatingAdmissionPolicyBinding,
			PrepareCreate: strategy.StartGeneration[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			PrepareUpdate: strategy.CountSpec(
				func(
					o *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
				) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
					return &o.Spec
				}),
			AnyFinalizer:   true,
			Validate:       validated(check, unreserved(validateValidatingBinding)),
			ValidateUpdate: validatedUpdate(check, validateValidatingBindingUpdate),

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "PolicyName", Type: "string",
					Description: "PolicyName indicates the policy definition which the policy binding binded to"},
				{Name: "ParamRef", Type: "string",
					Description: "ParamRef indicates the param resource which sets the configuration param"},
				column.Age(),
			},
			Cells: validatingAdmissionPolicyBindingCells,
		})
}

// mutatingAdmissionPolicyBindingRow returns the row of the kind table for the resource
// mutatingadmissionpolicybindings.
func mutatingAdmissionPolicyBindingRow(check CheckParams) *resource.Row {
	return resource.Of[admissionregistrationv1.MutatingAdmissionPolicyBindingList](
		resource.Kind[*admissionregistrationv1.MutatingAdmissionPolicyBinding]{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings",
			Kind:       "MutatingAdmissionPolicyBinding",
			Categories: []string{"api-extensions"},

			MetaOnUpdate:  resource.CheckNameAndFinalizers,
			Default:       defaultMutatingAdmissionPolicyBinding,
			PrepareCreate: strategy.StartGeneration[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			PrepareUpdate: strategy.CountSpec(
				func(
					o *admissionregistrationv1.MutatingAdmissionPolicyBinding,
				) *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
					return &o.Spec
				}),
			AnyFinalizer:   true,
			Validate:       validated(check, unreserved(validateMutatingBinding)),
			ValidateUpdate: validatedUpdate(check, validateMutatingBindingUpdate),

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "PolicyName", Type: "string",
					Description: "PolicyName indicates the policy definition which the policy binding binded to"},
				{Name: "ParamRef", Type: "string",
					Description: "ParamRef indicates the param resource which sets the configuration param"},
				column.Age(),
			},
			Cells: mutatingAdmissionPolicyBindingCells,
		})
}

func defaultValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

func defaultMutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

func validateValidatingBinding(_ context.Context,
	b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	checkBinding(&r, path, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
	checkActions(&r, path.Child("validationActions"), b.Spec.ValidationActions)
	return r.Errors
}

func validateValidatingBindingUpdate(ctx context.Context, b,
	_ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return validateValidatingBinding(ctx, b)
}

func validateMutatingBinding(_ context.Context,
	b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	checkBinding(&r, path, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
	if b.Spec.MatchResources != nil {
		checkMutable(&r, path.Child("matchResources"), b.Spec.MatchResources)
	}
	return r.Errors
}

func validateMutatingBindingUpdate(ctx context.Context, b,
	_ *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return validateMutatingBinding(ctx, b)
}

func checkBinding(r *report.Report, path *field.Path, policy string, params *admissionregistrationv1.ParamRef,
	match *admissionregistrationv1.MatchResources) {
	if policy == "" {
		r.Required(path.Child("policyName"), "")
	} else {
		r.Subdomain(path.Child("policyName"), policy)
	}
	checkParamRef(r, path.Child("paramRef"), params)
	checkMatch(r, path.Child("matchResources"), match)
}

func checkParamRef(r *report.Report, path *field.Path, ref *admissionregistrationv1.ParamRef) {
	if ref == nil {
		return
	}
	const exclusive = "name and selector are mutually exclusive"
	if ref.Name != "" {
		r.Each(path.Child("name"), ref.Name, content.IsPathSegmentName(ref.Name))
		if ref.Selector != nil {
			r.Forbidden(path.Child("name"), exclusive)
		}
	}
	if ref.Selector != nil {
		r.Selector(path.Child("selector"), ref.Selector)
		if ref.Name != "" {
			r.Forbidden(path.Child("selector"), exclusive)
		}
	}
	if ref.Name == "" && ref.Selector == nil {
		r.Required(path, "one of name or selector must be specified")
	}
	at := path.Child("parameterNotFoundAction")
	if ref.ParameterNotFoundAction == nil {
		r.Required(at, "")
		return
	}
	report.OneOfRequired(r, at, *ref.ParameterNotFoundAction, admissionregistrationv1.DenyAction,
		admissionregistrationv1.AllowAction)
}

func checkActions(r *report.Report, path *field.Path, actions []admissionregistrationv1.ValidationAction) {
	seen := sets.New[admissionregistrationv1.ValidationAction]()
	for i, a := range actions {
		report.OneOf(r, path.Index(i), a, admissionregistrationv1.Audit, admissionregistrationv1.Deny,
			admissionregistrationv1.Warn)
		if seen.Has(a) {
			r.Duplicate(path.Index(i), a)
		}
		seen.Insert(a)
	}
	if seen.HasAll(admissionregistrationv1.Deny, admissionregistrationv1.Warn) {
		r.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation "+
			"failure information in the API response and headers serves no purpose)")
	}
	if len(actions) == 0 {
		r.Required(path, "at least one validation action is required")
	}
}

func validatingAdmissionPolicyBindingCells(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
	env resource.CellEnv) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), env.Age(b.CreationTimestamp)}
}

func mutatingAdmissionPolicyBindingCells(b *admissionregistrationv1.MutatingAdmissionPolicyBinding,
	env resource.CellEnv) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), env.Age(b.CreationTimestamp)}
}

func paramKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return column.Unset
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRef(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil || ref.Name == "" && ref.Selector == nil:
		return column.Unset
	case ref.Name == "":
		return ref.Selector.String()
	case ref.Namespace != "":
		return ref.Namespace + "/" + ref.Name
	default:
		return "*/" + ref.Name
	}
}
