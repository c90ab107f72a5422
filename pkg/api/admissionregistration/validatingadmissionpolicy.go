// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/util/jsonpath"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// validatingAdmissionPolicyRow returns the row of the kind table for the resource
// validatingadmissionpolicies.
func validatingAdmissionPolicyRow(v *validator, check CheckParams) *resource.Row {
	parts := strategy.Parts[admissionregistrationv1.ValidatingAdmissionPolicy,
		admissionregistrationv1.ValidatingAdmissionPolicySpec,
		admissionregistrationv1.ValidatingAdmissionPolicyStatus](
		func(o *admissionregistrationv1.ValidatingAdmissionPolicy) (
			*admissionregistrationv1.ValidatingAdmissionPolicySpec, *admissionregistrationv1.ValidatingAdmissionPolicyStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[admissionregistrationv1.ValidatingAdmissionPolicyList](
		resource.Kind[*admissionregistrationv1.ValidatingAdmissionPolicy]{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
			Kind:       "ValidatingAdmissionPolicy",
			Categories: []string{"api-extensions"},

			MetaOnUpdate:   resource.CheckNameAndFinalizers,
			Default:        defaultValidatingAdmissionPolicy,
			PrepareCreate:  parts.Create,
			PrepareUpdate:  parts.Update,
			ResetFields:    []string{"status"},
			AnyFinalizer:   true,
			Validate:       validated(check, unreserved(v.validatingPolicy)),
			ValidateUpdate: validatedUpdate(check, v.validatingPolicyUpdate),

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "Validations", Type: "integer",
					Description: "Validations indicates the number of validation rules defined in this configuration"},
				{Name: "ParamKind", Type: "string",
					Description: "ParamKind specifies the kind of resources used to parameterize this policy"},
				column.Age(),
			},
			Cells: validatingAdmissionPolicyCells,

			Subresources: []resource.Sub[*admissionregistrationv1.ValidatingAdmissionPolicy]{
				{Subresource: strategy.View("status", "spec", "metadata").WithMetaChecks(resource.CheckNeither),
					PrepareUpdate: parts.KeepSpecAndMeta, ValidateUpdate: validatePolicyStatus},
			},
		})
}

func defaultValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	unset.Point(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

const (
	maxAuditAnnotations     = 20
	maxAuditExpressionBytes = 5 << 10
)

func (v *validator) validatingPolicy(_ context.Context,
	p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	return v.validating(p, nil)
}

func (v *validator) validatingPolicyUpdate(_ context.Context, p,
	old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	return v.validating(p, old)
}

// validating validates a validating admission policy. old is nil if the policy is new.
func (v *validator) validating(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	var r report.Report
	spec, path := &p.Spec, field.NewPath("spec")
	x, err := v.compilerFor(len(spec.Variables) > 0)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	keep := false
	if old != nil {
		x.keepValidating(&old.Spec)
		keep = sameConditions(spec.ParamKind, old.Spec.ParamKind, spec.MatchConditions, old.Spec.MatchConditions)
	}
	checkPolicy(&r, path, spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints)
	x.params = spec.ParamKind != nil
	if !keep {
		x.conditions(&r, path.Child("matchConditions"), spec.MatchConditions, x.params)
	}
	x.variables(&r, path.Child("variables"), spec.Variables)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const detail = "validations or auditAnnotations must contain at least one item"
		r.Required(path.Child("validations"), detail)
		r.Required(path.Child("auditAnnotations"), detail)
		return r.Errors
	}
	for i := range spec.Validations {
		x.validation(&r, path.Child("validations").Index(i), &spec.Validations[i])
	}
	x.auditAnnotations(&r, path.Child("auditAnnotations"), p.Name, spec.AuditAnnotations)
	return r.Errors
}

// compilerFor returns a compiler for the expressions of a new object. variables is true if the
// object has variables.
func (v *validator) compilerFor(variables bool) (*expressions, error) {
	if variables {
		return v.composing()
	}
	return v.stateless(), nil
}

func (x *expressions) keepValidating(old *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	x.keepConditions(old.MatchConditions)
	for _, v := range old.Validations {
		x.stored.Insert(v.Expression, v.MessageExpression)
	}
	for _, a := range old.AuditAnnotations {
		x.stored.Insert(a.ValueExpression)
	}
}

// sameConditions reports whether an update leaves the match conditions and the kind of the params
// unchanged. If it does, the conditions are not compiled again.
func sameConditions(kind, oldKind *admissionregistrationv1.ParamKind, conditions,
	oldConditions []admissionregistrationv1.MatchCondition) bool {
	return equality.Semantic.DeepEqual(kind, oldKind) && equality.Semantic.DeepEqual(conditions, oldConditions)
}

// checkPolicy checks the fields that validating and mutating admission policies share.
func checkPolicy(r *report.Report, path *field.Path, failure *admissionregistrationv1.FailurePolicyType,
	params *admissionregistrationv1.ParamKind, match *admissionregistrationv1.MatchResources) {
	if failure == nil {
		r.Required(path.Child("failurePolicy"), "")
	} else {
		checkFailurePolicy(r, path.Child("failurePolicy"), *failure)
	}
	if params != nil {
		checkParamKind(r, path.Child("paramKind"), params)
	}
	at := path.Child("matchConstraints")
	if match == nil {
		r.Required(at, "")
		return
	}
	checkMatch(r, at, match)
	if len(match.ResourceRules) == 0 {
		r.Required(at.Child("resourceRules"), "")
	}
}

func checkParamKind(r *report.Report, path *field.Path, k *admissionregistrationv1.ParamKind) {
	at := path.Child("apiVersion")
	group, version, ok := strings.Cut(k.APIVersion, "/")
	if !ok {
		group, version = "", k.APIVersion
	}
	switch {
	case k.APIVersion == "":
		r.Required(at, "")
	case strings.Contains(version, "/"):
		r.Invalid(at, k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion)
	default:
		if group != "" {
			if reasons := validation.IsDNS1123Subdomain(group); len(reasons) > 0 {
				r.Invalid(at, group, strings.Join(reasons, ","))
			}
		}
		if version == "" {
			r.Invalid(at, k.APIVersion, "version must be specified")
		} else if reasons := validation.IsDNS1035Label(version); len(reasons) > 0 {
			r.Invalid(at, version, strings.Join(reasons, ","))
		}
	}
	if k.Kind == "" {
		r.Required(path.Child("kind"), "")
	} else if reasons := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(reasons) > 0 {
		r.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(reasons, ","))
	}
}

func (x *expressions) validation(r *report.Report, path *field.Path, v *admissionregistrationv1.Validation) {
	if strings.TrimSpace(v.Expression) == "" {
		r.Required(path.Child("expression"), "expression is not specified")
	} else {
		x.compile(r, path.Child("expression"), &validating.ValidationCondition{Expression: v.Expression}, false)
	}
	const empty = "must be non-empty if specified"
	if v.MessageExpression != "" {
		at := path.Child("messageExpression")
		if strings.TrimSpace(v.MessageExpression) == "" {
			r.Invalid(at, v.MessageExpression, empty)
		} else {
			x.message(r, at, v.MessageExpression)
		}
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		r.Invalid(path.Child("message"), v.Message, empty)
	case strings.ContainsAny(message, "\n\r"):
		r.Invalid(path.Child("message"), v.Message, "must not contain line breaks")
	}
	if v.Reason != nil {
		report.OneOf(r, path.Child("reason"), *v.Reason,
			metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)
	}
}

// message checks an expression that computes a message. It cannot use the authorizer.
func (x *expressions) message(r *report.Report, path *field.Path, expression string) {
	result := x.compiler().CompileCELExpression(&validating.MessageExpressionCondition{MessageExpression: expression},
		plugincel.OptionalVariableDeclarations{HasParams: x.params}, x.environment(expression))
	if result.Error != nil {
		r.Expression(path, expression, result.Error)
	}
}

// auditAnnotations checks audit annotations. The server puts the name of the policy and a slash
// before each key, and the result must be a qualified name.
func (x *expressions) auditAnnotations(r *report.Report, path *field.Path, policy string,
	annotations []admissionregistrationv1.AuditAnnotation) {
	if len(annotations) > maxAuditAnnotations {
		r.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations))
	}
	seen := sets.New[string]()
	for i := range annotations {
		a, at := &annotations[i], path.Index(i)
		if policy == "" {
			r.Invalid(at.Child("key"), a.Key, "requires metadata.name be non-empty")
		} else {
			r.QualifiedName(at.Child("key"), policy+"/"+a.Key)
		}
		x.auditValue(r, at.Child("valueExpression"), a.ValueExpression)
		if seen.Has(a.Key) {
			r.Duplicate(at.Child("key"), a.Key)
		}
		seen.Insert(a.Key)
	}
}

func (x *expressions) auditValue(r *report.Report, path *field.Path, expression string) {
	switch trimmed := strings.TrimSpace(expression); {
	case trimmed == "":
		r.Required(path, "valueExpression is not specified")
	case len(trimmed) > maxAuditExpressionBytes:
		r.Required(path, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpressionBytes))
	default:
		x.compile(r, path, &validating.AuditAnnotationCondition{ValueExpression: expression}, false)
	}
}

func validatePolicyStatus(_ context.Context, p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	var r report.Report
	path := field.NewPath("status")
	if checked := p.Status.TypeChecking; checked != nil {
		for i, w := range checked.ExpressionWarnings {
			at := path.Child("typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				r.Required(at.Child("warning"), "")
			}
			checkFieldRef(&r, at.Child("fieldRef"), strings.TrimSpace(w.FieldRef))
		}
	}
	r.Add(metav1validation.ValidateConditions(p.Status.Conditions, path.Child("conditions"))...)
	return r.Errors
}

func checkFieldRef(r *report.Report, path *field.Path, ref string) {
	if ref == "" {
		r.Required(path, "")
		return
	}
	if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
		r.Invalid(path, ref, fmt.Sprintf("invalid JSONPath: %v", err))
	}
}

func validatingAdmissionPolicyCells(p *admissionregistrationv1.ValidatingAdmissionPolicy, env resource.CellEnv) []any {
	return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), env.Age(p.CreationTimestamp)}
}
