// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ingresstls grants the ingress proxy read access to the Secrets that Ingresses name for
// their TLS certificates, and to no other Secrets. In each namespace with such an Ingress the
// controller maintains one Role with the Secrets' names, and a RoleBinding of this Role to the
// proxy's service account.
//
// An Ingress can only name Secrets of its own namespace. A user who may write Ingresses in a
// namespace can make the proxy use a Secret of the namespace as its certificate, but cannot read
// the Secret.
package ingresstls

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "ingress-tls-controller"

// roleName is the name of the Role and of the RoleBinding.
const roleName = "keelson:ingress-tls"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue     *controller.Queue
	ingresses networkinglisters.IngressLister
	classes   networkinglisters.IngressClassLister
	roles     rbaclisters.RoleLister
	bindings  rbaclisters.RoleBindingLister
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	ingresses, classes := d.Informers.Networking().V1().Ingresses(), d.Informers.Networking().V1().IngressClasses()
	roles, bindings := d.Informers.Rbac().V1().Roles(), d.Informers.Rbac().V1().RoleBindings()
	c := &Controller{Deps: d, ingresses: ingresses.Lister(), classes: classes.Lister(), roles: roles.Lister(),
		bindings: bindings.Lister()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, 1, c.sync)
	return c, errors.Join(
		controller.OnChange(ingresses.Informer(), func(old, i *networkingv1.Ingress) {
			c.queue.Add(controller.Latest(old, i).Namespace)
		}),
		controller.OnChange(classes.Informer(), func(_, _ *networkingv1.IngressClass) { c.queueAll() }),
		controller.OnChange(roles.Informer(), func(old, r *rbacv1.Role) {
			if r := controller.Latest(old, r); r.Name == roleName {
				c.queue.Add(r.Namespace)
			}
		}),
		controller.OnChange(bindings.Informer(), func(old, b *rbacv1.RoleBinding) {
			if b := controller.Latest(old, b); b.Name == roleName {
				c.queue.Add(b.Namespace)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// queueAll queues every namespace that has an Ingress.
func (c *Controller) queueAll() {
	list, err := c.ingresses.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, i := range list {
		c.queue.Add(i.Namespace)
	}
}

func (c *Controller) sync(ctx context.Context, namespace string) error {
	names, err := c.namedSecrets(namespace)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return c.revoke(ctx, namespace)
	}
	return c.grant(ctx, namespace, names)
}

// namedSecrets returns the names of the Secrets that a namespace's Ingresses name for TLS. It only
// reads Ingresses whose IngressClass names the ingress proxy as its controller. It returns at most
// service.MaxIngressSecrets names.
func (c *Controller) namedSecrets(namespace string) ([]string, error) {
	list, err := c.ingresses.Ingresses(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("ingresses: %w", err)
	}
	names := map[string]bool{}
	for _, i := range list {
		if i.Spec.IngressClassName == nil {
			continue
		}
		class, err := c.classes.Get(*i.Spec.IngressClassName)
		if err != nil || class.Spec.Controller != service.IngressController {
			continue
		}
		for _, section := range i.Spec.TLS {
			if section.SecretName != "" {
				names[section.SecretName] = true
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	return sorted[:min(len(sorted), service.MaxIngressSecrets)], nil
}

// grant creates or updates the Role and the RoleBinding so that the proxy may read exactly the
// named Secrets.
func (c *Controller) grant(ctx context.Context, namespace string, names []string) error {
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get", "list", "watch"}, ResourceNames: names}}
	if has, err := c.roles.Roles(namespace).Get(roleName); err != nil || !equality.Semantic.DeepEqual(has.Rules, want) {
		rule := rbacapply.PolicyRule().WithAPIGroups("").WithResources("secrets").WithVerbs(
			want[0].Verbs...).WithResourceNames(names...)
		if _, err := c.Client.RbacV1().Roles(namespace).Apply(ctx,
			rbacapply.Role(roleName, namespace).WithRules(rule), c.applying()); err != nil {
			return ignoreTerminating(err, "role")
		}
	}
	account := c.Options.IngressAccount
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}
	if has, err := c.bindings.RoleBindings(namespace).Get(roleName); err == nil &&
		equality.Semantic.DeepEqual(has.Subjects, subjects) {
		return nil
	}
	binding := rbacapply.RoleBinding(roleName, namespace).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(roleName)).
		WithSubjects(rbacapply.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(account.Namespace).WithName(account.Name))
	_, err := c.Client.RbacV1().RoleBindings(namespace).Apply(ctx, binding, c.applying())
	return ignoreTerminating(err, "binding")
}

// revoke deletes the Role and the RoleBinding.
func (c *Controller) revoke(ctx context.Context, namespace string) error {
	if _, err := c.bindings.RoleBindings(namespace).Get(roleName); err == nil {
		if err := c.Client.RbacV1().RoleBindings(namespace).Delete(ctx, roleName,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("binding: %w", err)
		}
	}
	if _, err := c.roles.Roles(namespace).Get(roleName); err == nil {
		if err := c.Client.RbacV1().Roles(namespace).Delete(ctx, roleName,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("role: %w", err)
		}
	}
	return nil
}

func (c *Controller) applying() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: Name, Force: true}
}

// ignoreTerminating returns nil for errors that occur because the namespace is terminating or
// deleted. It wraps other errors.
func ignoreTerminating(err error, what string) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
