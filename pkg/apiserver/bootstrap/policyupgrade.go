// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// split maps each cluster role that became an aggregated role in Kubernetes 1.9 to the role with its
// own rules.
func split() map[string]string {
	return map[string]string{
		"admin": "system:aggregate-to-admin",
		"edit":  "system:aggregate-to-edit",
		"view":  "system:aggregate-to-view",
	}
}

// Before Kubernetes 1.14, the binding discovery also gave the permissions that publicInfo gives now.
const (
	discovery  = "system:discovery"
	publicInfo = "system:public-info-viewer"
)

// upgrade creates those objects of p that were part of another object in an older release. It
// copies that object, because operators may have changed it. In a new cluster it does nothing, and
// it never changes an existing object.
func (p *Policy) upgrade(ctx context.Context, client kubernetes.Interface) error {
	c := client.RbacV1()
	var tasks []func() error
	for from, to := range split() {
		tasks = append(tasks, func() error { return named("cluster role", to, copyRole(ctx, c.ClusterRoles(), from, to)) })
	}
	for _, b := range p.ClusterRoleBindings {
		if b.Name == publicInfo {
			tasks = append(tasks, func() error {
				return named("cluster role binding", b.Name, copySubjects(ctx, c.ClusterRoleBindings(), discovery, b))
			})
		}
	}
	return parallel(ctx, len(tasks), tasks)
}

// copyRole copies an old cluster role, whose name is from, to a new one, whose name is to. It does
// nothing if the new role exists, or if the old one does not exist or has an aggregation rule.
func copyRole(ctx context.Context, roles rbacclient.ClusterRoleInterface, from, to string) error {
	if _, err := roles.Get(ctx, to, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	role, err := roles.Get(ctx, from, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	if role.AggregationRule != nil {
		return nil
	}
	role.Name, role.ResourceVersion = to, ""
	_, err = roles.Create(ctx, role, metav1.CreateOptions{})
	return ignoreExists(err)
}

// copySubjects creates a cluster role binding with the subjects, labels and annotations of the old
// one, whose name is from. It does nothing if the old binding does not exist, or if the new one does.
func copySubjects(ctx context.Context, bindings rbacclient.ClusterRoleBindingInterface, from string,
	binding *rbacv1.ClusterRoleBinding) error {
	if _, err := bindings.Get(ctx, binding.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	old, err := bindings.Get(ctx, from, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	binding = binding.DeepCopy()
	binding.Subjects, binding.Labels, binding.Annotations = old.Subjects, old.Labels, old.Annotations
	_, err = bindings.Create(ctx, binding, metav1.CreateOptions{})
	return ignoreExists(err)
}
