// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterroleaggregation sets the rules of each ClusterRole with an aggregation rule to the
// rules of all roles that it selects, sorted by role name and without duplicates.
package clusterroleaggregation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "clusterrole-aggregation-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue *controller.Queue
	roles rbaclisters.ClusterRoleLister
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	roles := d.Informers.Rbac().V1().ClusterRoles()
	c := &Controller{Deps: d, roles: roles.Lister()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(roles.Informer(), func(_, _ *rbacv1.ClusterRole) { c.wake() })
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// wake queues all ClusterRoles with an aggregation rule, because each of them may select the
// changed role, or may have selected it before the change. A cluster has only a few of them.
func (c *Controller) wake() {
	roles, err := c.roles.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, r := range roles {
		if r.AggregationRule != nil {
			c.queue.Add(r.Name)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	role, err := c.roles.Get(name)
	if apierrors.IsNotFound(err) || err == nil && role.AggregationRule == nil {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := c.roles.List(labels.Everything())
	if err != nil {
		return err
	}
	rules, err := aggregate(role, all)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return nil
	}
	apply := rbacapply.ClusterRole(name)
	for _, r := range rules {
		apply.WithRules(rbacapply.PolicyRule().WithVerbs(r.Verbs...).WithAPIGroups(r.APIGroups...).
			WithResources(r.Resources...).WithResourceNames(r.ResourceNames...).WithNonResourceURLs(r.NonResourceURLs...))
	}
	_, err = c.Client.RbacV1().ClusterRoles().Apply(ctx, apply, metav1.ApplyOptions{FieldManager: Name, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("apply rules: %w", err)
	}
	return nil
}

// aggregate returns the rules of all roles that an aggregated role selects, except those of this
// role itself. It sorts the roles by name and drops duplicate rules.
func aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int {
		return strings.Compare(a.Name, b.Name)
	})
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("aggregation rule: %w", err)
		}
		for _, r := range all {
			if r.Name == role.Name || !selector.Matches(labels.Set(r.Labels)) {
				continue
			}
			for _, rule := range r.Rules {
				if !slices.ContainsFunc(rules, func(o rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(o, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}
