// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// Watch fills x from informers. synced reports whether all roles and bindings that existed at the
// start have been processed.
func (x *Index) Watch(informers rbacinformers.Interface) (synced func() bool, err error) {
	var regs []cache.ResourceEventHandlerRegistration
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		set, del func(any)
	}{
		{informers.ClusterRoles().Informer(), on(func(r *rbacv1.ClusterRole) { x.SetRole("", r.Name, r.Rules) }),
			on(func(r *rbacv1.ClusterRole) { x.DeleteRole("", r.Name) })},
		{informers.Roles().Informer(), on(func(r *rbacv1.Role) { x.SetRole(r.Namespace, r.Name, r.Rules) }),
			on(func(r *rbacv1.Role) { x.DeleteRole(r.Namespace, r.Name) })},
		{informers.ClusterRoleBindings().Informer(),
			on(func(b *rbacv1.ClusterRoleBinding) { x.SetBinding("", b.Name, b.RoleRef, b.Subjects) }),
			on(func(b *rbacv1.ClusterRoleBinding) { x.DeleteBinding("", b.Name) })},
		{informers.RoleBindings().Informer(),
			on(func(b *rbacv1.RoleBinding) { x.SetBinding(b.Namespace, b.Name, b.RoleRef, b.Subjects) }),
			on(func(b *rbacv1.RoleBinding) { x.DeleteBinding(b.Namespace, b.Name) })},
	} {
		reg, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: w.set, UpdateFunc: func(_, obj any) { w.set(obj) }, DeleteFunc: w.del,
		})
		if err != nil {
			return nil, fmt.Errorf("follow roles and bindings: %w", err)
		}
		regs = append(regs, reg)
	}
	return func() bool {
		for _, r := range regs {
			if !r.HasSynced() {
				return false
			}
		}
		return true
	}, nil
}

// on returns an event handler that calls f with the object of an informer event, if it has type T.
func on[T any](f func(T)) func(any) {
	return func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if t, ok := obj.(T); ok {
			f(t)
		}
	}
}
