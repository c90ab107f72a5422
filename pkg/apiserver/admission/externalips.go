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

// errExternalIPs is Kubernetes' message, with its capital letter.
var errExternalIPs = errors.New("Use of external IPs is denied by admission control")

// newDenyExternalIPs returns a plugin that rejects new external IPs of services, because a user
// could take over traffic for any address. External IPs that a service has already may stay or be
// removed.
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
