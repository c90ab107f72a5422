// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/rest"
)

// Access says what users may do.
type Access struct {
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
}

// Connectors are the review kinds' connectors.
func (a *Access) Connectors() map[string]rest.Connector {
	const group = ".authorization.k8s.io"
	return map[string]rest.Connector{
		"subjectaccessreviews" + group: rest.Creater{
			New: func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }, Create: a.subject, Own: true},
		"localsubjectaccessreviews" + group: rest.Creater{
			New: func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} }, Create: a.local, Own: true},
		"selfsubjectaccessreviews" + group: rest.Creater{
			New: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }, Create: a.self, Own: true},
		"selfsubjectrulesreviews" + group: rest.Creater{
			New: func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }, Create: a.rules},
	}
}

func (a *Access) subject(ctx context.Context, _ *rest.Request, obj runtime.Object, validate validateFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SubjectAccessReview: %T", obj))
	}
	errs := append(checkSpec(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), checkSubject(&r.Spec)...)
	if err := review(ctx, "SubjectAccessReview", errs, obj, validate); err != nil {
		return nil, err
	}
	r.Status = a.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

func (a *Access) local(ctx context.Context, req *rest.Request, obj runtime.Object, validate validateFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.LocalSubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a LocalSubjectAccessReview: %T", obj))
	}
	errs := append(checkSpec(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), checkSubject(&r.Spec)...)
	if at := r.Spec.ResourceAttributes; at != nil && at.Namespace != req.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), at.Namespace, "must match metadata.namespace"))
	}
	if at := r.Spec.NonResourceAttributes; at != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), at, "disallowed on this kind of request"))
	}
	if err := review(ctx, "LocalSubjectAccessReview", errs, obj, validate); err != nil {
		return nil, err
	}
	r.Status = a.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, nil)
	return r, nil
}

func (a *Access) self(ctx context.Context, _ *rest.Request, obj runtime.Object, validate validateFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SelfSubjectAccessReview: %T", obj))
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	if err := review(ctx, "SelfSubjectAccessReview", checkSpec(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), obj, validate); err != nil {
		return nil, err
	}
	r.Status = a.decide(ctx, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

func (a *Access) rules(ctx context.Context, _ *rest.Request, obj runtime.Object, validate validateFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SelfSubjectRulesReview: %T", obj))
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	if r.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	if err := validate(ctx, obj); err != nil {
		return nil, err
	}
	resources, others, incomplete, err := a.Rules.RulesFor(ctx, u, r.Spec.Namespace)
	out := &authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete,
	}}
	for _, i := range resources {
		out.Status.ResourceRules = append(out.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: i.GetVerbs(), APIGroups: i.GetAPIGroups(), Resources: i.GetResources(), ResourceNames: i.GetResourceNames(),
		})
	}
	for _, i := range others {
		out.Status.NonResourceRules = append(out.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: i.GetVerbs(), NonResourceURLs: i.GetNonResourceURLs(),
		})
	}
	if err != nil {
		out.Status.EvaluationError = err.Error()
	}
	return out, nil
}

// review refuses what is malformed, and asks admission.
func review(ctx context.Context, kind string, errs field.ErrorList, obj runtime.Object, validate validateFunc) error {
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
	}
	return validate(ctx, obj)
}

func checkSpec(res *authorizationv1.ResourceAttributes, non *authorizationv1.NonResourceAttributes) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if res != nil && non != nil {
		errs = append(errs, field.Invalid(path.Child("nonResourceAttributes"), non, "cannot be specified in combination with resourceAttributes"))
	}
	if res == nil && non == nil {
		errs = append(errs, field.Invalid(path.Child("resourceAttributes"), non, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if res == nil {
		return errs
	}
	at := field.NewPath("spec.resourceAttributes")
	if s := res.FieldSelector; s != nil && s.RawSelector != "" && len(s.Requirements) > 0 {
		errs = append(errs, field.Invalid(at.Child("fieldSelector", "rawSelector"), s.RawSelector, "may not specified at the same time as requirements"))
	}
	if s := res.LabelSelector; s != nil && s.RawSelector != "" && len(s.Requirements) > 0 {
		errs = append(errs, field.Invalid(at.Child("labelSelector", "rawSelector"), s.RawSelector, "may not specified at the same time as requirements"))
	}
	return errs
}

func checkSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if spec.User == "" && len(spec.Groups) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified")}
	}
	return nil
}

func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	extra := map[string][]string{}
	for k, v := range spec.Extra {
		extra[k] = v
	}
	return &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID, Extra: extra}
}

func (a *Access) decide(ctx context.Context, u user.Info, res *authorizationv1.ResourceAttributes, non *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	attrs := authorizer.AttributesRecord{User: u}
	if res != nil {
		attrs.ResourceRequest = true
		attrs.Verb, attrs.Namespace, attrs.Name = res.Verb, res.Namespace, res.Name
		attrs.APIGroup, attrs.APIVersion, attrs.Resource, attrs.Subresource = res.Group, res.Version, res.Resource, res.Subresource
		if attrs.APIVersion == "" {
			attrs.APIVersion = "*"
		}
		selectors(&attrs, res)
	} else {
		attrs.Verb, attrs.Path = non.Verb, non.Path
	}
	decision, reason, err := a.Authorizer.Authorize(ctx, attrs)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

// selectors hands on the selectors that can be read; the others narrow nothing.
func selectors(attrs *authorizer.AttributesRecord, res *authorizationv1.ResourceAttributes) {
	if s := res.FieldSelector; s != nil {
		if s.RawSelector != "" {
			parsed, err := fields.ParseSelector(s.RawSelector)
			if err == nil {
				attrs.FieldSelectorRequirements = parsed.Requirements()
			}
			attrs.FieldSelectorParsingErr = err
		}
		for _, r := range s.Requirements {
			op := map[metav1.FieldSelectorOperator]selection.Operator{
				metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals,
			}[r.Operator]
			if op != "" && len(r.Values) == 1 {
				attrs.FieldSelectorRequirements = append(attrs.FieldSelectorRequirements, fields.Requirement{Field: r.Key, Operator: op, Value: r.Values[0]})
			}
		}
	}
	if s := res.LabelSelector; s != nil {
		selector, err := labels.Parse(s.RawSelector)
		if s.RawSelector == "" {
			selector, err = metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements})
		}
		if err == nil {
			attrs.LabelSelectorRequirements, _ = selector.Requirements()
		}
		attrs.LabelSelectorParsingErr = err
	}
}
