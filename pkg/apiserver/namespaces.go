// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// namespaceHooks keep a namespace, terminating, until spec.finalizers is empty:
// whoever is named there has emptied it then.
func namespaceHooks() registry.Hooks {
	return registry.Hooks{
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
