// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// namespaceHooks keep a namespace, in phase Terminating, until spec.finalizers is empty. The
// components named there empty it first.
func namespaceHooks() resource.Hooks[*corev1.Namespace] {
	return resource.Hooks[*corev1.Namespace]{
		BeforeDelete: beforeNamespace,
		Ending: func(_ context.Context, ns *corev1.Namespace) bool {
			ns.Status.Phase = corev1.NamespaceTerminating // also if only metadata.finalizers keep it
			if len(ns.Spec.Finalizers) == 0 {
				return false
			}
			ns.DeletionGracePeriodSeconds = nil
			return true
		},
		KeepOnUpdate: func(ns, _ *corev1.Namespace) bool { return len(ns.Spec.Finalizers) > 0 },
	}
}

// beforeNamespace leaves a namespace that is being emptied as it is. Dependents that are not to be
// orphaned are deleted before the namespace, and not after it as with other kinds.
func beforeNamespace(_ context.Context, ns *corev1.Namespace, options *metav1.DeleteOptions) error {
	if err := expectedNamespace(ns, options); err != nil {
		return err
	}
	if p := options.Preconditions; p == nil {
		options.Preconditions = &metav1.Preconditions{UID: new(ns.GetUID())}
	} else if p.UID == nil {
		options.Preconditions = &metav1.Preconditions{UID: new(ns.GetUID()), ResourceVersion: p.ResourceVersion}
	}
	if ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) > 0 {
		return resource.ErrBeingDeleted
	}
	if orphan := options.OrphanDependents; orphan != nil && !*orphan { // part of the API
		foreground := metav1.DeletePropagationForeground
		options.OrphanDependents, options.PropagationPolicy = nil, &foreground // part of the API
	}
	return nil
}

// expectedNamespace checks the preconditions of a delete. Kubernetes words a violation differently
// for namespaces than for other kinds.
func expectedNamespace(ns *corev1.Namespace, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	conflict := func(what, said, has string) error {
		return apierrors.NewConflict(corev1.Resource("namespaces"), ns.GetName(),
			fmt.Errorf("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, said, what, has)) //nolint:staticcheck // the client reads it as it is
	}
	if p.UID != nil && *p.UID != ns.GetUID() {
		return conflict("UID", string(*p.UID), string(ns.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != ns.GetResourceVersion() {
		return conflict("ResourceVersion", *p.ResourceVersion, ns.GetResourceVersion())
	}
	return nil
}
