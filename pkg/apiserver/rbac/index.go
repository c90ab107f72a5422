// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac authorizes requests by roles and bindings, and rejects writes of roles and bindings
// that would grant a user more rights.
//
// Bindings are indexed by subject, so the cost of a decision depends only on the number of the
// user's own bindings. Watch fills an Index from informers. Roles and bindings that the informers
// have not delivered yet grant nothing. An Index allows a request or has no opinion. It never
// denies.
package rbac

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Index has roles and bindings by subject. It is safe for concurrent use.
type Index struct {
	mu sync.RWMutex
	// roles has the rules of each role. The namespace of a cluster role is empty.
	roles map[roleKey][]rbacv1.PolicyRule
	// bindings has the bindings by namespace and name. It is used to remove a binding from grants.
	bindings map[roleKey]*binding
	// grants has the bindings by namespace ("" for cluster role bindings) and subject. A list
	// contains each binding at most once.
	grants map[string]map[subject][]*binding
}

type roleKey struct{ namespace, name string }

// subject is a user or a group. A service account is a user with the service account's user name.
type subject struct {
	group bool
	name  string
}

// binding is a RoleBinding or ClusterRoleBinding. It is immutable.
type binding struct {
	key      roleKey
	ref      rbacv1.RoleRef
	role     roleKey
	subjects []rbacv1.Subject
}

// NewIndex returns an empty index of roles and bindings.
func NewIndex() *Index {
	return &Index{
		roles:    map[roleKey][]rbacv1.PolicyRule{},
		bindings: map[roleKey]*binding{},
		grants:   map[string]map[subject][]*binding{},
	}
}

// SetRole stores the rules of a role. namespace is empty for a cluster role.
func (x *Index) SetRole(namespace, name string, rules []rbacv1.PolicyRule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.roles[roleKey{namespace, name}] = rules
}

// DeleteRole removes a role.
func (x *Index) DeleteRole(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.roles, roleKey{namespace, name})
}

// HasRole reports whether a role exists. namespace is empty for a cluster role.
func (x *Index) HasRole(namespace, name string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, ok := x.roles[roleKey{namespace, name}]
	return ok
}

// SetBinding stores a binding. namespace is empty for a cluster role binding.
func (x *Index) SetBinding(namespace, name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	b := &binding{key: roleKey{namespace, name}, ref: ref, role: roleKey{"", ref.Name}, subjects: subjects}
	if ref.Kind == "Role" {
		b.role.namespace = namespace
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unbind(b.key)
	x.bindings[b.key] = b
	bySubject := x.grants[namespace]
	if bySubject == nil {
		bySubject = map[subject][]*binding{}
		x.grants[namespace] = bySubject
	}
	for _, s := range subjects {
		if k, ok := keyOf(s, namespace); ok && !slices.Contains(bySubject[k], b) {
			bySubject[k] = append(bySubject[k], b)
		}
	}
}

// DeleteBinding removes a binding.
func (x *Index) DeleteBinding(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unbind(roleKey{namespace, name})
}

// HasBinding reports whether a binding exists. namespace is empty for a cluster role binding.
func (x *Index) HasBinding(namespace, name string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.bindings[roleKey{namespace, name}] != nil
}

// unbind removes a binding from bindings and grants. The caller holds x.mu.
func (x *Index) unbind(key roleKey) {
	b := x.bindings[key]
	if b == nil {
		return
	}
	delete(x.bindings, key)
	bySubject := x.grants[key.namespace]
	for _, s := range b.subjects {
		k, ok := keyOf(s, key.namespace)
		if !ok {
			continue
		}
		var rest []*binding
		for _, other := range bySubject[k] {
			if other != b {
				rest = append(rest, other)
			}
		}
		if len(rest) == 0 {
			delete(bySubject, k)
		} else {
			bySubject[k] = rest
		}
	}
	if len(bySubject) == 0 {
		delete(x.grants, key.namespace)
	}
}

// keyOf returns the user or group that s means in a binding of namespace, or false if it means
// none.
func keyOf(s rbacv1.Subject, namespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}, true
	case rbacv1.GroupKind:
		return subject{group: true, name: s.Name}, true
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		if namespace == "" {
			return subject{}, false
		}
		return subject{name: serviceaccount.MakeUsername(namespace, s.Name)}, true
	}
	return subject{}, false
}

// visit calls fn with each binding of u that applies in namespace and with the rules of its role,
// until fn returns false. Cluster role bindings come first. A binding is visited once for each of
// its subjects that matches u. The argument found of fn is false if the role does not exist.
func (x *Index) visit(u user.Info, namespace string, fn func(b *binding, rules []rbacv1.PolicyRule, found bool) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.visitIn("", u, fn) || namespace == "" {
		return
	}
	x.visitIn(namespace, u, fn)
}

func (x *Index) visitIn(namespace string, u user.Info, fn func(*binding, []rbacv1.PolicyRule, bool) bool) bool {
	bySubject := x.grants[namespace]
	if len(bySubject) == 0 {
		return true
	}
	if !x.visitGrants(bySubject[subject{name: u.GetName()}], fn) {
		return false
	}
	for _, g := range u.GetGroups() {
		if !x.visitGrants(bySubject[subject{group: true, name: g}], fn) {
			return false
		}
	}
	return true
}

func (x *Index) visitGrants(grants []*binding, fn func(*binding, []rbacv1.PolicyRule, bool) bool) bool {
	for _, b := range grants {
		rules, found := x.roles[b.role]
		if !fn(b, rules, found) {
			return false
		}
	}
	return true
}

// Authorize allows a request if a role that is bound to the user allows it.
func (x *Index) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	u := attrs.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "no user on request", nil
	}
	var by *binding
	var missing []rbacv1.RoleRef
	x.visit(u, attrs.GetNamespace(), func(b *binding, rules []rbacv1.PolicyRule, found bool) bool {
		if !found {
			missing = append(missing, b.ref)
			return true
		}
		if !allowsAny(rules, attrs) {
			return true
		}
		by = b
		return false
	})
	if by != nil {
		return authorizer.DecisionAllow, "RBAC: allowed by " + by.describe(u), nil
	}
	if len(missing) > 0 {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", notFound(missing)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// describe returns the reason for allowing a request of u, as in Kubernetes' audit annotations. It
// names b, its role, and the first subject of b that matches u.
func (b *binding) describe(u user.Info) string {
	var who string
	for _, s := range b.subjects {
		k, ok := keyOf(s, b.key.namespace)
		if !ok || (k.group && !slices.Contains(u.GetGroups(), k.name)) || (!k.group && k.name != u.GetName()) {
			continue
		}
		who = fmt.Sprintf("%s %q", s.Kind, s.Name)
		if s.Kind == rbacv1.ServiceAccountKind {
			who = fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+cmp.Or(s.Namespace, b.key.namespace))
		}
		break
	}
	if b.key.namespace == "" {
		return fmt.Sprintf("ClusterRoleBinding %q of %s %q to %s", b.key.name, b.ref.Kind, b.ref.Name, who)
	}
	return fmt.Sprintf("RoleBinding %q of %s %q to %s", b.key.name+"/"+b.key.namespace, b.ref.Kind, b.ref.Name, who)
}

// Rules returns all rules of u in namespace, in the order of the names of their bindings. Rules
// from cluster role bindings come first. missing are the roles that are bound to u but do not
// exist, so u may lack their rules.
func (x *Index) Rules(u user.Info, namespace string) (rules []rbacv1.PolicyRule, missing []rbacv1.RoleRef) {
	type bound struct {
		by    *binding
		rules []rbacv1.PolicyRule
		found bool
	}
	var all []bound
	x.visit(u, namespace, func(b *binding, rules []rbacv1.PolicyRule, found bool) bool {
		all = append(all, bound{b, rules, found})
		return true
	})
	slices.SortFunc(all, func(a, b bound) int {
		return cmp.Or(strings.Compare(a.by.key.namespace, b.by.key.namespace), strings.Compare(a.by.key.name, b.by.key.name))
	})
	all = slices.CompactFunc(all, func(a, b bound) bool { return a.by == b.by })
	for _, b := range all {
		if !b.found {
			missing = append(missing, b.by.ref)
		}
		rules = append(rules, b.rules...)
	}
	return rules, missing
}

// notFound returns an error for missing roles. As in the errors of Kubernetes' caches, the resource
// in the error is the kind of the role in lower case.
func notFound(roles []rbacv1.RoleRef) error {
	var errs []error
	for _, r := range roles {
		errs = append(errs, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName,
			Resource: strings.ToLower(r.Kind)}, r.Name))
	}
	return utilerrors.NewAggregate(errs)
}

// RulesFor returns the result of Rules in the form that SelfSubjectRulesReview needs.
func (x *Index) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo,
	[]authorizer.NonResourceRuleInfo, bool, error) {
	rules, missing := x.Rules(u, namespace)
	var resource []authorizer.ResourceRuleInfo
	var nonResource []authorizer.NonResourceRuleInfo
	for _, r := range rules {
		if len(r.Resources) > 0 {
			resource = append(resource, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			nonResource = append(nonResource, &authorizer.DefaultNonResourceRuleInfo{
				Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs,
			})
		}
	}
	return resource, nonResource, false, notFound(missing)
}

// RoleRules returns the rules of the role that ref refers to in a binding of namespace, and whether
// the role exists.
func (x *Index) RoleRules(ref rbacv1.RoleRef, namespace string) (rules []rbacv1.PolicyRule, found bool) {
	key := roleKey{"", ref.Name}
	if ref.Kind == "Role" {
		key.namespace = namespace
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	rules, found = x.roles[key]
	return slices.Clone(rules), found
}
