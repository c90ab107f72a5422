// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// namespaces reads the namespaces of writes.
type namespaces struct {
	client kubernetes.Interface
	lister corelisters.NamespaceLister
}

func newNamespaces(deps Deps) namespaces {
	return namespaces{deps.Client, deps.Informers.Core().V1().Namespaces().Lister()}
}

// get returns a namespace from the informer. If the informer does not have it, get reads it from
// the server, because it may be new.
func (n namespaces) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := n.lister.Get(name)
	if apierrors.IsNotFound(err) {
		ns, err = n.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, apierrors.NewInternalError(err)
	}
	return ns, err
}

// inNamespace reports whether a write is in a namespace that has to exist.
func inNamespace(a admission.Attributes) bool {
	return a.GetNamespace() != "" && a.GetKind().GroupKind() != schema.GroupKind{Kind: "Namespace"}
}

// namespaceExists is the plugin NamespaceExists, which rejects writes to namespaces that do not
// exist.
type namespaceExists struct {
	*admission.Handler
	namespaces
}

func newNamespaceExists(deps Deps) (admission.Interface, error) {
	return &namespaceExists{admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		newNamespaces(deps)}, nil
}

// Validate rejects the write if its namespace does not exist.
func (p *namespaceExists) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !inNamespace(a) {
		return nil
	}
	_, err := p.get(ctx, a.GetNamespace())
	return err
}

// namespaceProvision is the plugin NamespaceAutoProvision, which creates the namespace of a new
// object if it does not exist.
type namespaceProvision struct {
	*admission.Handler
	namespaces
}

func newNamespaceProvision(deps Deps) (admission.Interface, error) {
	return &namespaceProvision{admission.NewHandler(admission.Create), newNamespaces(deps)}, nil
}

// Admit creates the namespace of the object if it does not exist. In a dry run it creates nothing.
func (p *namespaceProvision) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.IsDryRun() || !inNamespace(a) {
		return nil
	}
	_, err := p.lister.Get(a.GetNamespace())
	if apierrors.IsNotFound(err) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.GetNamespace()}}
		_, err = p.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return admission.NewForbidden(a, err)
}
