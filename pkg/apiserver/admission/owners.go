// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ownerReferences checks changes of owner references. A user who adds an owner must have the right
// to delete the object. A user who sets blockOwnerDeletion must have the right to update the
// owner's finalizers. Otherwise, users could make the garbage collector delete or keep objects
// without having these rights.
type ownerReferences struct {
	*admission.Handler
	authz  authorizer.UnconditionalAuthorizer
	mapper meta.RESTMapper
}

func newOwnerReferences(deps Deps) (admission.Interface, error) {
	return &ownerReferences{admission.NewHandler(admission.Create, admission.Update), deps.Authorizer, deps.Mapper}, nil
}

// Validate checks that the user has the rights that the change of owner references needs.
func (p *ownerReferences) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if gr := a.GetResource().GroupResource(); gr.Group == "" && gr.Resource == "pods" && a.GetSubresource() == "status" {
		return nil
	}
	now, was := owners(a.GetObject()), owners(a.GetOldObject())
	if equality.Semantic.DeepEqual(now, was) {
		return nil
	}
	if a.GetOperation() != admission.Create {
		err := p.require(ctx, a, "delete", a.GetResource().GroupResource(), a.GetSubresource(), a.GetName(), a.GetNamespace())
		if err != nil {
			return admission.NewForbidden(a, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %w", err))
		}
	}
	refs := blocking(now, was)
	if len(refs) == 0 ||
		p.require(ctx, a, "update", schema.GroupResource{Group: "*", Resource: "*"}, "finalizers", "*", "") == nil {
		return nil
	}
	for _, ref := range refs {
		gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		mapping, err := p.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return admission.NewForbidden(a, fmt.Errorf("cannot set blockOwnerDeletion in this case because "+
				"cannot find RESTMapping for APIVersion %s Kind %s: %w", ref.APIVersion, ref.Kind, err))
		}
		namespace := ""
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace = a.GetNamespace()
		}
		if err := p.require(ctx, a, "update", mapping.Resource.GroupResource(), "finalizers", ref.Name,
			namespace); err != nil {
			return admission.NewForbidden(a,
				fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you "+
					"can't set finalizers on: %w", err))
		}
	}
	return nil
}

// require returns nil if the user is authorized. Otherwise it returns the reason of the authorizer.
func (p *ownerReferences) require(ctx context.Context, a admission.Attributes, verb string,
	gr schema.GroupResource, sub, name, namespace string) error {
	decision, reason, err := p.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, APIGroup: gr.Group, APIVersion: "*", Resource: gr.Resource, Subresource: sub,
		Name: name, Namespace: namespace, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return fmt.Errorf("%s, %v", reason, err) //nolint:errorlint // Kubernetes' text, with "<nil>" if err is nil
}

func owners(obj any) []metav1.OwnerReference {
	if m, ok := obj.(metav1.Object); ok {
		return m.GetOwnerReferences()
	}
	return nil
}

func blocks(r metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// blocking returns the new references that have blockOwnerDeletion and did not have it among the
// old references.
func blocking(now, was []metav1.OwnerReference) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, r := range now {
		if blocks(r) && !slices.ContainsFunc(was, func(o metav1.OwnerReference) bool { return o.UID == r.UID && blocks(o) }) {
			out = append(out, r)
		}
	}
	return out
}
