// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Guard rejects writes of roles and bindings by which a user would get, or give to others, rights
// that the user does not have. Exempt are system:masters, users with the verb "escalate" on the
// role, and users with the verb "bind" on the role that a binding refers to.
type Guard struct {
	Rules      *Index
	Authorizer authorizer.UnconditionalAuthorizer
}

// fullAuthority returns rules that allow everything. A user who writes an aggregation rule must
// have all these rights, because the role may later contain any rule.
func fullAuthority() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
}

// CheckWrite returns a Forbidden error if the user of ctx may not store obj. old is the stored
// object, or nil on create. Objects that are no roles or bindings are always allowed.
func (g *Guard) CheckWrite(ctx context.Context, obj, old runtime.Object) error {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName}, "", errors.New("no user on context"))
	}
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	if old != nil && OnlyOwnership(obj, old) {
		return nil
	}
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		prior, _ := old.(*rbacv1.ClusterRole)
		return g.checkRole(ctx, u, "clusterroles", "", o.Name, o.Rules, aggregates(o) || aggregates(prior))
	case *rbacv1.Role:
		return g.checkRole(ctx, u, "roles", o.Namespace, o.Name, o.Rules, false)
	case *rbacv1.ClusterRoleBinding:
		return g.checkBinding(ctx, u, "clusterrolebindings", "", o.Name, o.RoleRef)
	case *rbacv1.RoleBinding:
		return g.checkBinding(ctx, u, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	}
	return nil
}

func aggregates(r *rbacv1.ClusterRole) bool {
	return r != nil && r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// OnlyOwnership reports whether obj differs from old only in finalizers and owner references. The
// garbage collector must be able to change these.
func OnlyOwnership(obj, old runtime.Object) bool {
	a, err := meta.Accessor(obj.DeepCopyObject())
	if err != nil {
		return false
	}
	b, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	a.SetFinalizers(b.GetFinalizers())
	a.SetOwnerReferences(b.GetOwnerReferences())
	a.SetManagedFields(b.GetManagedFields())
	a.SetSelfLink(b.GetSelfLink())
	return equality.Semantic.DeepEqual(a, b)
}

func (g *Guard) checkRole(ctx context.Context, u user.Info, resource, namespace, name string,
	rules []rbacv1.PolicyRule, aggregated bool) error {
	gr := schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
	if g.may(ctx, u, "escalate", gr, namespace, requestName(ctx)) {
		return nil
	}
	if err := g.holds(u, gr, namespace, rules); err != nil {
		return apierrors.NewForbidden(gr, name, err)
	}
	if aggregated && g.holds(u, gr, namespace, fullAuthority()) != nil {
		return apierrors.NewForbidden(gr, name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

func (g *Guard) checkBinding(ctx context.Context, u user.Info, resource, namespace, name string,
	ref rbacv1.RoleRef) error {
	targets := map[string]string{"ClusterRole": "clusterroles", "Role": "roles"}
	target, ok := targets[ref.Kind]
	if !ok {
		return fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
	if g.may(ctx, u, "bind", schema.GroupResource{Group: ref.APIGroup, Resource: target}, namespace, ref.Name) {
		return nil
	}
	if err := findable(ref, namespace); err != nil {
		return err
	}
	gr := schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
	rules, ok := g.Rules.RoleRules(ref, namespace)
	if !ok {
		return missing(gr, ref)
	}
	if err := g.holds(u, gr, namespace, rules); err != nil {
		return apierrors.NewForbidden(gr, name, err)
	}
	return nil
}

// missing returns the error for a role that does not exist. As in Kubernetes, it names the resource
// of the request instead of the kind of the role.
func missing(requested schema.GroupResource, role rbacv1.RoleRef) error {
	return apierrors.NewNotFound(requested, role.Name)
}

// findable returns an error if the role reference ref cannot refer to any role, such as one with an
// empty name.
func findable(ref rbacv1.RoleRef, namespace string) error {
	if ref.Kind == "Role" && namespace == "" {
		return apierrors.NewBadRequest("Namespace parameter required.")
	}
	if ref.Name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	if faults := path.IsValidPathSegmentName(ref.Name); len(faults) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", ref.Name, strings.Join(faults, ";")))
	}
	return nil
}

func (g *Guard) may(ctx context.Context, u user.Info, verb string, resource schema.GroupResource, namespace,
	name string) bool {
	if g.Authorizer == nil {
		return false
	}
	decision, _, _ := g.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: resource.Group, APIVersion: "*",
		Resource: resource.Resource, Namespace: namespace, Name: name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

func requestName(ctx context.Context) string {
	if info, ok := request.RequestInfoFrom(ctx); ok {
		return info.Name
	}
	return ""
}

// holds returns nil if u has all rights in rules in namespace. Otherwise it returns an error that
// lists the rules that u lacks.
func (g *Guard) holds(u user.Info, requested schema.GroupResource, namespace string, rules []rbacv1.PolicyRule) error {
	own, unknown := g.Rules.Rules(u, namespace)
	ok, lacking := validation.Covers(own, rules)
	if ok {
		return nil
	}
	var lines []string
	for _, r := range compact(lacking) {
		lines = append(lines, describe(r))
	}
	slices.Sort(lines)
	msg := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), strings.Join(slices.Compact(lines), "\n"))
	if len(unknown) > 0 {
		var errs []error
		for _, role := range unknown {
			errs = append(errs, missing(requested, role))
		}
		msg += fmt.Sprintf("; resolution errors: [%v]", utilerrors.NewAggregate(errs))
	}
	return errors.New(msg)
}

// compact merges RBAC rules for the same resource that differ only in verbs. It does not remove
// duplicate verbs.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type simple struct {
		group, resource, name string
		named                 bool
	}
	at := map[simple]int{}
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		if len(r.APIGroups) != 1 || len(r.Resources) != 1 || len(r.ResourceNames) > 1 || len(r.NonResourceURLs) > 0 {
			out = append(out, r)
			continue
		}
		key := simple{group: r.APIGroups[0], resource: r.Resources[0]}
		if len(r.ResourceNames) == 1 {
			key.name, key.named = r.ResourceNames[0], true
		}
		if i, ok := at[key]; ok {
			out[i].Verbs = append(out[i].Verbs, r.Verbs...)
			continue
		}
		at[key] = len(out)
		out = append(out, *r.DeepCopy())
	}
	return out
}

func describe(r rbacv1.PolicyRule) string {
	var parts []string
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(p.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", p.name, p.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
