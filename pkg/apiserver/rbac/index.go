// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac decides requests by roles and bindings, and guards the writing
// of roles and bindings themselves.
//
// Bindings are indexed by subject, so that a decision costs what the user's own
// bindings cost, however many there are. An Index is fed from outside (Watch);
// what it has not seen grants nothing. It only ever allows or has no opinion:
// RBAC has no denials.
package rbac

import (
	"context"
	"errors"
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

// Index holds roles and bindings. It is safe for concurrent use.
type Index struct {
	mu sync.RWMutex
	// roles by roleKey; those of the cluster have an empty namespace.
	roles map[roleKey][]rbacv1.PolicyRule
	// bindings by roleKey of the binding itself, to undo what it added to grants.
	bindings map[roleKey]*binding
	// grants by namespace ("" for the cluster's) and subject.
	grants map[string]map[subject][]grant
}

type roleKey struct{ namespace, name string }

// subject names a user or a group. A service account is the user of its name.
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

type grant struct {
	binding *binding
	subject int // of binding.subjects
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{
		roles:    map[roleKey][]rbacv1.PolicyRule{},
		bindings: map[roleKey]*binding{},
		grants:   map[string]map[subject][]grant{},
	}
}

// SetRole stores the rules of a role; namespace is empty for a cluster role.
func (x *Index) SetRole(namespace, name string, rules []rbacv1.PolicyRule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.roles[roleKey{namespace, name}] = rules
}

// DeleteRole forgets a role.
func (x *Index) DeleteRole(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.roles, roleKey{namespace, name})
}

// HasRole reports whether a role is known; namespace is empty for a cluster role.
func (x *Index) HasRole(namespace, name string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, ok := x.roles[roleKey{namespace, name}]
	return ok
}

// SetBinding stores a binding; namespace is empty for a cluster role binding.
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
		bySubject = map[subject][]grant{}
		x.grants[namespace] = bySubject
	}
	for i, s := range subjects {
		if k, ok := keyOf(s, namespace); ok {
			bySubject[k] = append(bySubject[k], grant{b, i})
		}
	}
}

// DeleteBinding forgets a binding.
func (x *Index) DeleteBinding(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unbind(roleKey{namespace, name})
}

// HasBinding reports whether a binding is known; namespace is empty for a
// cluster role binding.
func (x *Index) HasBinding(namespace, name string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.bindings[roleKey{namespace, name}] != nil
}

// unbind undoes SetBinding. x.mu is held.
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
		// A new slice: readers may hold the old one.
		var rest []grant
		for _, g := range bySubject[k] {
			if g.binding != b {
				rest = append(rest, g)
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

// keyOf is who s means in a binding of namespace.
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

// visit calls fn with the rules of every role that u has in namespace: the
// cluster's bindings first, then the namespace's. Roles that do not exist come
// with an error. It stops when fn returns false.
func (x *Index) visit(u user.Info, namespace string, fn func(g grant, rules []rbacv1.PolicyRule, err error) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.visitIn("", u, fn) || namespace == "" {
		return
	}
	x.visitIn(namespace, u, fn)
}

func (x *Index) visitIn(namespace string, u user.Info, fn func(grant, []rbacv1.PolicyRule, error) bool) bool {
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

func (x *Index) visitGrants(grants []grant, fn func(grant, []rbacv1.PolicyRule, error) bool) bool {
	for _, g := range grants {
		rules, ok := x.roles[g.binding.role]
		var err error
		if !ok {
			err = apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: strings.ToLower(g.binding.ref.Kind)}, g.binding.ref.Name)
		}
		if !fn(g, rules, err) {
			return false
		}
	}
	return true
}

// Authorize allows what a role of the user's allows.
func (x *Index) Authorize(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	u := attrs.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "no user on request", nil
	}
	var by grant
	var errs []error
	x.visit(u, attrs.GetNamespace(), func(g grant, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return true
		}
		if !allowsAny(rules, attrs) {
			return true
		}
		by = g
		return false
	})
	if by.binding != nil {
		return authorizer.DecisionAllow, "RBAC: allowed by " + by.String(), nil
	}
	if len(errs) > 0 {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// String describes g as Kubernetes' audit annotations do.
func (g grant) String() string {
	b, s := g.binding, g.binding.subjects[g.subject]
	who := fmt.Sprintf("%s %q", s.Kind, s.Name)
	if s.Kind == rbacv1.ServiceAccountKind {
		who = fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+s.Namespace)
	}
	if b.key.namespace == "" {
		return fmt.Sprintf("ClusterRoleBinding %q of %s %q to %s", b.key.name, b.ref.Kind, b.ref.Name, who)
	}
	return fmt.Sprintf("RoleBinding %q of %s %q to %s", b.key.name+"/"+b.key.namespace, b.ref.Kind, b.ref.Name, who)
}

// Rules returns everything that u may do in namespace. The error says which
// roles are missing; the rules are then still right, only not complete.
func (x *Index) Rules(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var out []rbacv1.PolicyRule
	var errs []error
	x.visit(u, namespace, func(_ grant, rules []rbacv1.PolicyRule, err error) bool {
		out, errs = append(out, rules...), appendErr(errs, err)
		return true
	})
	return out, utilerrors.NewAggregate(errs)
}

// RulesFor is Rules in the form that SelfSubjectRulesReview asks for.
func (x *Index) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := x.Rules(u, namespace)
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
	return resource, nonResource, false, err
}

// RoleRules returns the rules that ref means in a binding of namespace.
func (x *Index) RoleRules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	key := roleKey{"", ref.Name}
	if ref.Kind == "Role" {
		key.namespace = namespace
	} else if ref.Kind != "ClusterRole" {
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	rules, ok := x.roles[key]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: strings.ToLower(ref.Kind)}, ref.Name)
	}
	return slices.Clone(rules), nil
}

func appendErr(errs []error, err error) []error {
	if err == nil || slices.ContainsFunc(errs, func(e error) bool { return errors.Is(e, err) }) {
		return errs
	}
	return append(errs, err)
}
