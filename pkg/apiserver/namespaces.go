// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// namespaceHooks keep a namespace, terminating, until spec.finalizers is empty:
// whoever is named there has emptied it then.
func namespaceHooks() registry.Hooks {
	return registry.Hooks{
		BeforeDelete: beforeNamespace,
		Ending: func(_ context.Context, obj resource.Object) bool {
			ns, ok := obj.(*corev1.Namespace)
			if !ok || len(ns.Spec.Finalizers) == 0 {
				return false
			}
			ns.Status.Phase = corev1.NamespaceTerminating
			ns.DeletionGracePeriodSeconds = nil
			return true
		},
		KeepOnUpdate: func(obj, _ resource.Object) bool {
			ns, ok := obj.(*corev1.Namespace)
			return ok && len(ns.Spec.Finalizers) > 0
		},
	}
}

// beforeNamespace has a namespace that is being emptied left as it is. Dependents that are
// not to be orphaned go first, where other kinds' go after.
func beforeNamespace(ctx context.Context, obj resource.Object, options *metav1.DeleteOptions) error {
	if err := expectedNamespace(ctx, obj, options); err != nil {
		return err
	}
	if p := options.Preconditions; p == nil {
		options.Preconditions = &metav1.Preconditions{UID: new(obj.GetUID())}
	} else if p.UID == nil {
		options.Preconditions = &metav1.Preconditions{UID: new(obj.GetUID()), ResourceVersion: p.ResourceVersion}
	}
	if ns, ok := obj.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
		return registry.ErrBeingDeleted
	}
	if orphan := options.OrphanDependents; orphan != nil && !*orphan { // part of the API
		foreground := metav1.DeletePropagationForeground
		options.OrphanDependents, options.PropagationPolicy = nil, &foreground // part of the API
	}
	return nil
}

// expectedNamespace refuses to delete another namespace than the client knows, in words
// that only namespaces have.
func expectedNamespace(_ context.Context, obj resource.Object, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	conflict := func(what, said, has string) error {
		return apierrors.NewConflict(corev1.Resource("namespaces"), obj.GetName(),
			fmt.Errorf("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, said, what, has)) //nolint:staticcheck // the client reads it as it is
	}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return conflict("UID", string(*p.UID), string(obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return conflict("ResourceVersion", *p.ResourceVersion, obj.GetResourceVersion())
	}
	return nil
}
