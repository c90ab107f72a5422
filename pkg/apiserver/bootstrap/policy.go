// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap creates the objects that every cluster has: system namespaces, priority
// classes, the default RBAC policy, the "kubernetes" service and its endpoints, flow control
// defaults, and the authentication configuration of extension servers.
//
// Every server of a cluster runs all steps. Running a step again changes nothing.
package bootstrap

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"sigs.k8s.io/yaml"
)

//go:embed policy/*.yaml policy/optional/*.yaml
var policyFiles embed.FS

// Policy is the RBAC policy of a new cluster.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// DefaultPolicy returns the embedded policy. enabled reports which features are on; some of them
// add rules.
func DefaultPolicy(enabled func(feature string) bool) (*Policy, error) {
	files, err := fs.Glob(policyFiles, "policy/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("RBAC policy: %w", err)
	}
	optional, err := fs.Glob(policyFiles, "policy/optional/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("RBAC policy: %w", err)
	}
	for _, file := range optional {
		if enabled(strings.TrimSuffix(path.Base(file), ".yaml")) {
			files = append(files, file)
		}
	}
	p := &Policy{}
	for _, file := range files {
		data, err := policyFiles.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("RBAC policy: %w", err)
		}
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
			if err := p.add(doc); err != nil {
				return nil, fmt.Errorf("RBAC policy %s: %w", file, err)
			}
		}
	}
	p.mergeRoles()
	p.bindControllers()
	return p, nil
}

// add adds the object of a YAML document.
func (p *Policy) add(doc []byte) error {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(data, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "ClusterRole":
		return decode(data, &p.ClusterRoles, func(o *rbacv1.ClusterRole) *metav1.ObjectMeta { return &o.ObjectMeta })
	case "ClusterRoleBinding":
		return decode(data, &p.ClusterRoleBindings, func(o *rbacv1.ClusterRoleBinding) *metav1.ObjectMeta {
			return &o.ObjectMeta
		})
	case "Role":
		return decode(data, &p.Roles, func(o *rbacv1.Role) *metav1.ObjectMeta { return &o.ObjectMeta })
	case "RoleBinding":
		return decode(data, &p.RoleBindings, func(o *rbacv1.RoleBinding) *metav1.ObjectMeta { return &o.ObjectMeta })
	}
	return fmt.Errorf("unknown kind %q", kind.Kind)
}

// decode decodes an object strictly from JSON, and appends it to a list.
func decode[T any](data []byte, into *[]*T, meta func(*T) *metav1.ObjectMeta) error {
	obj := new(T)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(obj); err != nil {
		return err
	}
	m := meta(obj)
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels["kubernetes.io/bootstrapping"] = "rbac-defaults"
	m.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}
	*into = append(*into, obj)
	return nil
}

// mergeRoles adds the rules of each cluster role to the first one with the same name, because features
// add rules to roles.
func (p *Policy) mergeRoles() {
	first, merged := map[string]*rbacv1.ClusterRole{}, []*rbacv1.ClusterRole(nil)
	for _, r := range p.ClusterRoles {
		if role := first[r.Name]; role != nil {
			role.Rules = append(role.Rules, r.Rules...)
			continue
		}
		first[r.Name] = r
		merged = append(merged, r)
	}
	p.ClusterRoles = merged
}

const controllerPrefix = "system:controller:"

// bindControllers adds a binding of each controller's cluster role to the controller's service
// account.
func (p *Policy) bindControllers() {
	for _, role := range p.ClusterRoles {
		account, ok := strings.CutPrefix(role.Name, controllerPrefix)
		if !ok {
			continue
		}
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name:        role.Name,
				Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
				Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
			},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: account}},
		})
	}
}

// NodeRules returns the rules of the role system:node.
func (p *Policy) NodeRules() ([]rbacv1.PolicyRule, error) {
	for _, r := range p.ClusterRoles {
		if r.Name == "system:node" {
			return r.Rules, nil
		}
	}
	return nil, errors.New("RBAC policy: no role system:node")
}

// Known reports which roles and bindings exist. namespace is empty for cluster roles and cluster
// role bindings.
type Known interface {
	HasRole(namespace, name string) bool
	HasBinding(namespace, name string) bool
}

// KnownTo reports whether k finds all objects of p.
func (p *Policy) KnownTo(k Known) bool {
	return !slices.ContainsFunc(p.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return !k.HasRole("", r.Name) }) &&
		!slices.ContainsFunc(p.Roles, func(r *rbacv1.Role) bool { return !k.HasRole(r.Namespace, r.Name) }) &&
		!slices.ContainsFunc(p.ClusterRoleBindings, func(b *rbacv1.ClusterRoleBinding) bool {
			return !k.HasBinding("", b.Name)
		}) &&
		!slices.ContainsFunc(p.RoleBindings, func(b *rbacv1.RoleBinding) bool { return !k.HasBinding(b.Namespace, b.Name) })
}

// Reconcile creates missing objects of p, and adds missing rules and subjects to existing objects.
// If a missing object was part of another object in an older release, it is created with the
// changes that operators made there. The namespaces of p's roles must exist. It continues after an
// error and returns all errors.
func (p *Policy) Reconcile(ctx context.Context, client kubernetes.Interface) error {
	if err := p.upgrade(ctx, client); err != nil {
		return err
	}
	c := client.RbacV1()
	var tasks []func() error
	for _, r := range p.ClusterRoles {
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleOptions{
				Role:   reconciliation.ClusterRoleRuleOwner{ClusterRole: r},
				Client: reconciliation.ClusterRoleModifier{Client: c.ClusterRoles()}, Confirm: true,
			}).Run()
			return named("cluster role", r.Name, err)
		})
	}
	for _, b := range p.ClusterRoleBindings {
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleBindingOptions{
				RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b},
				Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: c.ClusterRoleBindings()}, Confirm: true,
			}).Run()
			return named("cluster role binding", b.Name, err)
		})
	}
	for _, r := range p.Roles {
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleOptions{
				Role:   reconciliation.RoleRuleOwner{Role: r},
				Client: reconciliation.RoleModifier{Client: c, NamespaceClient: client.CoreV1().Namespaces()}, Confirm: true,
			}).Run()
			return named("role", r.Name, err)
		})
	}
	for _, b := range p.RoleBindings {
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleBindingOptions{
				RoleBinding: reconciliation.RoleBindingAdapter{RoleBinding: b},
				Client: reconciliation.RoleBindingClientAdapter{Client: c,
					NamespaceClient: client.CoreV1().Namespaces()}, Confirm: true,
			}).Run()
			return named("role binding", b.Name, err)
		})
	}
	return parallel(ctx, 32, tasks)
}

func named(kind, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// parallel runs tasks, at most n at a time. It repeats a task that returns a conflict, because
// another server may have written the same object. It returns all errors.
func parallel(ctx context.Context, n int, tasks []func() error) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		free = make(chan struct{}, n)
	)
	for _, task := range tasks {
		if ctx.Err() != nil {
			break
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if err := retry.RetryOnConflict(retry.DefaultBackoff, task); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
