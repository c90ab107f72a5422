// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/api/networking/hosts"
)

// ingressHosts records in an annotation since when an Ingress has each of its hosts. If several
// namespaces use a host, an ingress proxy assigns it to the namespace that has used it for the
// longest time. Without the record, a tenant could take over a host by adding it to an Ingress that
// is older than the other tenant's.
type ingressHosts struct {
	*admission.Handler
	clock clock.Clock
}

func newIngressHosts(deps Deps) (admission.Interface, error) {
	return &ingressHosts{admission.NewHandler(admission.Create, admission.Update), deps.Clock}, nil
}

// Admit implements admission.MutationInterface.
func (p *ingressHosts) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	ing, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok {
		return nil
	}
	old, _ := a.GetOldObject().(*networkingv1.Ingress)
	if err := hosts.Record(ing, old, p.clock.Now()); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}
