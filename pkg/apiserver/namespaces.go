// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
)

// namespaceCheck returns what decides whether new objects of row may be stored in a namespace: the
// rule of NamespaceLifecycle, applied once more when all of admission has passed. If the plugin
// does not run, there is no rule.
func (a *assembly) namespaceCheck(row *resource.Row) registry.NamespaceCheck {
	if !slices.Contains(a.admission.Names(), lifecycle.PluginName) {
		return nil
	}
	// A transaction covers one database. If the namespace is in another one, the server reads it
	// right before it stores the object.
	apart := a.databases.have(location(row)) != a.databases.have(corev1.Resource("namespaces"))
	return func(ctx context.Context, attrs admission.Attributes, latest bool) ([]kv.Unchanged, error) {
		ns, err := a.openNamespace(ctx, attrs, latest || apart)
		if err != nil || apart {
			return nil, err
		}
		return []kv.Unchanged{a.namespaces.Unchanged(ns)}, nil
	}
}

// openNamespace returns the namespace of a creation, if objects may be created in it. Unless
// latest is set, the cache is enough to allow it, but not to refuse it.
func (a *assembly) openNamespace(ctx context.Context, attrs admission.Attributes, latest bool) (*store.Record, error) {
	if !latest {
		ns, err := a.namespaces.Get(ctx, attrs.GetNamespace(), "0")
		if err == nil && !endingNamespace(ns) {
			return ns, nil
		}
	}
	ns, err := a.namespaces.Get(ctx, attrs.GetNamespace(), "")
	if err == nil && endingNamespace(ns) {
		err = refuseContent(attrs)
	}
	return ns, err
}

func endingNamespace(ns *store.Record) bool {
	return ns.Fields["status.phase"] == string(corev1.NamespaceTerminating)
}

// refuseContent is what NamespaceLifecycle answers to creations in a namespace that ends.
func refuseContent(attrs admission.Attributes) error {
	ns := attrs.GetNamespace()
	err := admission.NewForbidden(attrs, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns))
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", ns), Field: "metadata.namespace",
		})
	}
	return err
}

// namespaceHooks keep a namespace, terminating, until spec.finalizers is empty:
// whoever is named there has emptied it then.
func namespaceHooks() registry.Hooks {
	return registry.Hooks{
		BeforeDelete: beforeNamespace,
		Ending: func(_ context.Context, obj resource.Object) bool {
			ns, ok := obj.(*corev1.Namespace)
			if !ok {
				return false
			}
			ns.Status.Phase = corev1.NamespaceTerminating // also if only metadata.finalizers keep it
			if len(ns.Spec.Finalizers) == 0 {
				return false
			}
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
