// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// Restore has services that were stored before they had more than one address, or said of
// which families those are, look like all others.
func (a *Allocator) Restore(rows []*resource.Row) {
	for _, row := range rows {
		if row.Group == "" && row.Resource == "services" {
			row.Restore = func(obj resource.Object) {
				if svc, ok := obj.(*corev1.Service); ok {
					restore(svc, a.Families)
				}
			}
		}
	}
}

func restore(svc *corev1.Service, configured []corev1.IPFamily) {
	syncClusterIPs(svc, nil)
	if external(svc) {
		svc.Spec.InternalTrafficPolicy = nil // once it was set by default
		return
	}
	if spec := &svc.Spec; len(spec.IPFamilies) == 0 {
		spec.IPFamilies = familiesOf(svc, configured)
		switch len(spec.IPFamilies) {
		case 1:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		case 2:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
}

// familiesOf are those of a service's addresses. Nobody knows of which families the
// endpoints are that somebody made for a service without a selector.
func familiesOf(svc *corev1.Service, configured []corev1.IPFamily) (families []corev1.IPFamily) {
	switch {
	case headless(svc) && len(svc.Spec.Selector) == 0:
		return []corev1.IPFamily{configured[0], otherFamily(configured[0])}
	case headless(svc):
		return []corev1.IPFamily{configured[0]}
	}
	for _, ip := range svc.Spec.ClusterIPs {
		family, ok := familyOf(ip)
		if !ok {
			family = corev1.IPv4Protocol // as Kubernetes takes what is no address
		}
		families = append(families, family)
	}
	return families
}
