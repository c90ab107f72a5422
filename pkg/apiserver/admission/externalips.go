// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// errExternalIPs is the error of DenyServiceExternalIPs, with Kubernetes' message.
var errExternalIPs = errors.New("Use of external IPs is denied by admission control")

// newDenyExternalIPs returns the plugin DenyServiceExternalIPs. It rejects updates and creates that
// add external IPs to a service, because with these a user could receive traffic for any address.
// External IPs that a service already has may stay.
func newDenyExternalIPs(Deps) (admission.Interface, error) {
	return &typed[*corev1.Service]{
		Handler: admission.NewHandler(admission.Create, admission.Update), resource: "services",
		validate: func(_ context.Context, a admission.Attributes, svc *corev1.Service) error {
			var before []string
			if old, ok := a.GetOldObject().(*corev1.Service); ok {
				before = old.Spec.ExternalIPs
			}
			if slices.ContainsFunc(svc.Spec.ExternalIPs, func(ip string) bool { return !slices.Contains(before, ip) }) {
				return admission.NewForbidden(a, errExternalIPs)
			}
			return nil
		},
	}, nil
}
