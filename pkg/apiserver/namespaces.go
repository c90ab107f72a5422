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

// namespaceCheck returns the check that a new object of the resource may be stored in its
// namespace. It repeats the check of the NamespaceLifecycle plugin after all other admission
// plugins have run. It returns nil if that plugin is disabled.
func (a *assembly) namespaceCheck(row *resource.Row) registry.NamespaceCheck {
	if !slices.Contains(a.admission.Names(), lifecycle.PluginName) {
		return nil
	}
	// A transaction covers only one database. If the namespace is in another database than the
	// object, the server reads the namespace right before it stores the object.
	apart := a.databases.have(location(row)) != a.databases.have(corev1.Resource("namespaces"))
	return func(ctx context.Context, attrs admission.Attributes, latest bool) ([]kv.Unchanged, error) {
		ns, err := a.openNamespace(ctx, attrs, latest || apart)
		if err != nil || apart {
			return nil, err
		}
		return []kv.Unchanged{a.namespaces.Unchanged(ns)}, nil
	}
}

// openNamespace returns the namespace of a new object if objects may be created in it. Unless
// latest is set, it may decide from the cache that the creation is allowed. Before it rejects a
// creation, it always reads the current namespace from the store.
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

// refuseContent returns the error of NamespaceLifecycle for a creation in a terminating namespace.
func refuseContent(attrs admission.Attributes) error {
	ns := attrs.GetNamespace()
	err := admission.NewForbidden(attrs,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns))
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated",
				ns), Field: "metadata.namespace",
		})
	}
	return err
}
