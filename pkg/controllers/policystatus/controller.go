// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policystatus checks the types in the expressions of ValidatingAdmissionPolicies against
// the schemas of the resources that they match, and writes warnings to their status. The library
// k8s.io/apiserver checks the expressions.
package policystatus

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	applyadmissionregistrationv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	admissionregistrationlisters "k8s.io/client-go/listers/admissionregistration/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "validatingadmissionpolicy-status-controller"

// fieldManager is the field manager with which the controller applies the status.
const fieldManager = "validatingadmissionpolicy-status"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	policies admissionregistrationlisters.ValidatingAdmissionPolicyLister
	schemas  resolver.SchemaResolver
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	policies := d.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies()
	c := &Controller{
		Deps: d, policies: policies.Lister(),
		schemas: &resolver.ClientDiscoveryResolver{Discovery: d.Discovery},
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(policies.Informer(), func(_, p *admissionregistrationv1.ValidatingAdmissionPolicy) {
		if p != nil && p.Generation > p.Status.ObservedGeneration {
			c.queue.Add(p.Name)
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) error {
	policy, err := c.policies.Get(name)
	if apierrors.IsNotFound(err) || err == nil && policy.Generation <= policy.Status.ObservedGeneration {
		return nil
	}
	if err != nil {
		return err
	}
	types := &knownTypes{ResettableRESTMapper: c.Mapper, schemas: c.schemas}
	warnings := (&validating.TypeChecker{SchemaResolver: types, RestMapper: types}).Check(policy)
	if types.failure != nil {
		return fmt.Errorf("types of policy: %w", types.failure)
	}
	checked := applyadmissionregistrationv1.TypeChecking()
	for _, w := range warnings {
		checked.WithExpressionWarnings(applyadmissionregistrationv1.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	status := applyadmissionregistrationv1.ValidatingAdmissionPolicyStatus().WithObservedGeneration(
		policy.Generation).WithTypeChecking(checked)
	_, err = c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		applyadmissionregistrationv1.ValidatingAdmissionPolicy(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
