// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/authorization"
)

// Access answers SubjectAccessReviews, LocalSubjectAccessReviews, SelfSubjectAccessReviews and
// SelfSubjectRulesReviews.
type Access struct {
	Authorizer authorizer.UnconditionalAuthorizer
	Rules      authorizer.RuleResolver
}

// Rows returns the handlers of the resources of authorization.k8s.io.
func (a *Access) Rows() authorization.Deps {
	return authorization.Deps{
		SubjectAccessReview: &resource.Creator{
			New: func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }, Create: a.subject},
		LocalSubjectAccessReview: &resource.Creator{
			New: func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} }, Create: a.local},
		SelfSubjectAccessReview: &resource.Creator{
			New: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }, Create: a.self},
		SelfSubjectRulesReview: &resource.Creator{
			New: func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }, Create: a.rules},
	}
}

func (a *Access) subject(ctx context.Context, _ *resource.Request, obj runtime.Object, validate validateFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SubjectAccessReview: %T", obj))
	}
	errs := checkSpec(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, checkSubject(&r.Spec))
	errs = append(errs, checkEmpty(&r.ObjectMeta, "", "must be empty")...)
	if err := review(ctx, errs, obj, validate); err != nil {
		return nil, err
	}
	r.Status = a.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

func (a *Access) local(ctx context.Context, req *resource.Request, obj runtime.Object, validate validateFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.LocalSubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a LocalSubjectAccessReview: %T", obj))
	}
	errs := checkSpec(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, checkSubject(&r.Spec))
	errs = append(errs, checkEmpty(&r.ObjectMeta, r.Namespace, "must be empty except for namespace")...)
	if at := r.Spec.ResourceAttributes; at != nil && at.Namespace != req.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), at.Namespace,
			"must match metadata.namespace"))
	}
	if at := r.Spec.NonResourceAttributes; at != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), at,
			"disallowed on this kind of request"))
	}
	if len(errs) == 0 && req.Namespace == "" {
		return nil, apierrors.NewBadRequest("namespace is required on this type: ")
	}
	if err := review(ctx, errs, obj, validate); err != nil {
		return nil, err
	}
	r.Status = a.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, nil)
	return r, nil
}

func (a *Access) self(ctx context.Context, _ *resource.Request, obj runtime.Object, validate validateFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	r, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SelfSubjectAccessReview: %T", obj))
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	errs := append(checkSpec(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, nil),
		checkEmpty(&r.ObjectMeta, "", "must be empty")...)
	if err := review(ctx, errs, obj, validate); err != nil {
		return nil, err
	}
	r.Status = a.decide(ctx, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

func (a *Access) rules(ctx context.Context, _ *resource.Request, obj runtime.Object, validate validateFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
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
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
		Incomplete: incomplete,
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

// review rejects a review that has errs, and otherwise passes it to validating admission. As in
// Kubernetes, the error does not contain the kind.
func review(ctx context.Context, errs field.ErrorList, obj runtime.Object, validate validateFunc) error {
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
	}
	return validate(ctx, obj)
}

// checkSpec validates the request that a review is about. subject contains the errors about the
// user in the review, which come after the errors about attributes.
func checkSpec(res *authorizationv1.ResourceAttributes, non *authorizationv1.NonResourceAttributes,
	subject field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if (res == nil) == (non == nil) {
		errs = append(errs, field.Invalid(path, non,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	errs = append(errs, subject...)
	if res == nil {
		return errs
	}
	return append(errs, checkSelectors(res, path.Child("resourceAttributes"))...)
}

func checkSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if spec.User == "" && len(spec.Groups) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "user"), spec.User,
			"at least one of user or group must be specified")}
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

func (a *Access) decide(ctx context.Context, u user.Info, res *authorizationv1.ResourceAttributes,
	non *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	attrs := authorizer.AttributesRecord{User: u}
	if res != nil {
		attrs.ResourceRequest = true
		attrs.Verb, attrs.Namespace, attrs.Name = res.Verb, res.Namespace, res.Name
		attrs.APIGroup, attrs.APIVersion, attrs.Resource, attrs.Subresource = res.Group, res.Version,
			res.Resource, res.Subresource
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
	status.EvaluationError = evaluationError(err, &attrs)
	return status
}
