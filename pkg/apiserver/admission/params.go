// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/apiserver/resource"
)

// ParamGuard checks that a user who writes an admission policy or binding may read its parameters.
// Expressions of policies read parameters with the server's rights, so a user could otherwise read
// any object by a policy.
type ParamGuard struct {
	Authorizer authorizer.UnconditionalAuthorizer
	Mapper     meta.RESTMapper
	Client     kubernetes.Interface
}

// Check returns an error if obj, which is a policy or a binding, refers to parameters that the user
// may not read. It does not check a reference that old also has.
func (g *ParamGuard) Check(ctx context.Context, obj, old resource.Object) field.ErrorList {
	ref := refOf(obj)
	if ref == nil || old != nil && equality.Semantic.DeepEqual(refOf(old), ref) {
		return nil
	}
	u, ok := request.UserFrom(ctx)
	if ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	err := fmt.Errorf("cannot identify user to authorize read access to %s", ref.what())
	if ok {
		err = g.authorize(ctx, u, ref)
	}
	if err == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", ref.field()), err.Error())}
}

// paramSource is the part of a policy or a binding that selects parameters.
type paramSource struct {
	Kind *admissionregistrationv1.ParamKind // kind of the parameters; only for policies

	Ref      *admissionregistrationv1.ParamRef // the parameters; only for bindings
	Policy   string
	Mutating bool
}

func (p *paramSource) field() string {
	if p.Ref != nil {
		return "paramRef"
	}
	return "paramKind"
}

func (p *paramSource) what() string {
	if p.Ref != nil {
		return "paramRef object"
	}
	return "paramKind resources"
}

// refOf returns the reference to parameters in a policy or binding, or nil if it has none.
func refOf(obj resource.Object) *paramSource {
	p := &paramSource{}
	switch o := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		p.Kind = o.Spec.ParamKind
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		p.Kind = o.Spec.ParamKind
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		p.Ref, p.Policy = o.Spec.ParamRef, o.Spec.PolicyName
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		p.Ref, p.Policy, p.Mutating = o.Spec.ParamRef, o.Spec.PolicyName, true
	}
	if p.Kind == nil && p.Ref == nil {
		return nil
	}
	return p
}

func (g *ParamGuard) authorize(ctx context.Context, u user.Info, p *paramSource) error {
	if p.Ref != nil {
		return g.authorizeRef(ctx, u, p)
	}
	attrs := authorizer.AttributesRecord{User: u, Verb: "get", ResourceRequest: true, Name: "*", Namespace: "*"}
	// If the resource of the kind is not found, attrs are for all resources, so the user needs the
	// right to read all of them.
	_ = g.resolve(p.Kind, &attrs)
	if ok, err := g.allows(ctx, &attrs); ok || err != nil {
		return err
	}
	return fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind `+
		`(kind=%s, apiVersion=%s)`, u, p.Kind.Kind, p.Kind.APIVersion)
}

func (g *ParamGuard) authorizeRef(ctx context.Context, u user.Info, p *paramSource) error {
	attrs := authorizer.AttributesRecord{User: u, Verb: "get", ResourceRequest: true, Name: p.Ref.Name,
		Namespace: p.Ref.Namespace}
	if p.Ref.Name == "" {
		attrs.Verb = "list"
	}
	kind, policyErr := g.paramKind(ctx, p)
	err := g.resolve(kind, &attrs)
	if ok, err := g.allows(ctx, &attrs); ok || err != nil {
		return err
	}
	const everything = `to determine minimum required permissions and user %v does not have "%v" permission ` +
		`for all groups, versions and resources`
	switch {
	case policyErr != nil:
		return fmt.Errorf("unable to get policy %s "+everything, p.Policy, u, attrs.Verb)
	case err != nil:
		return fmt.Errorf("%w paramKind %v "+everything, err, kind, u, attrs.Verb)
	}
	// As in Kubernetes, the two arguments are in this order.
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, attrs.Verb, u)
}

// paramKind returns the kind of the parameters from the policy of a binding. It returns nil if the
// policy has no parameters.
func (g *ParamGuard) paramKind(ctx context.Context, p *paramSource) (*admissionregistrationv1.ParamKind, error) {
	api := g.Client.AdmissionregistrationV1()
	if p.Mutating {
		policy, err := api.MutatingAdmissionPolicies().Get(ctx, p.Policy, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return policy.Spec.ParamKind, nil
	}
	policy, err := api.ValidatingAdmissionPolicies().Get(ctx, p.Policy, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return policy.Spec.ParamKind, nil
}

// resolve sets the resource of kind in attrs. If kind is nil or its resource is not found, it sets
// all resources.
func (g *ParamGuard) resolve(kind *admissionregistrationv1.ParamKind, attrs *authorizer.AttributesRecord) error {
	attrs.APIGroup, attrs.APIVersion, attrs.Resource = "*", "*", "*"
	if kind == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return errUnparsed
	}
	attrs.APIGroup, attrs.APIVersion = gv.Group, gv.Version
	mapping, err := g.Mapper.RESTMapping(gv.WithKind(kind.Kind).GroupKind(), gv.Version)
	if err != nil {
		return errUnresolved
	}
	attrs.Resource = mapping.Resource.Resource
	return nil
}

const (
	errUnparsed   = paramError("unable to parse")
	errUnresolved = paramError("unable to resolve")
)

type paramError string

// Error implements error.
func (e paramError) Error() string { return string(e) }

func (g *ParamGuard) allows(ctx context.Context, attrs authorizer.Attributes) (bool, error) {
	decision, _, err := g.Authorizer.Authorize(ctx, attrs)
	return decision == authorizer.DecisionAllow, err
}
