// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import corev1 "k8s.io/api/core/v1"

// Restore completes a service that was stored by an old server, before services had the fields for
// several addresses and families.
func (a *Allocator) Restore(svc *corev1.Service) {
	syncClusterIPs(svc, nil)
	if external(svc) {
		svc.Spec.InternalTrafficPolicy = nil // older servers stored a default here
		return
	}
	if spec := &svc.Spec; len(spec.IPFamilies) == 0 {
		spec.IPFamilies = familiesOf(svc, a.Families)
		switch len(spec.IPFamilies) {
		case 1:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		case 2:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
}

// familiesOf returns the IP families of a service's addresses. For a headless service without a
// selector it returns both families, because its endpoints may have any family.
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
			family = corev1.IPv4Protocol // Kubernetes treats an invalid address as IPv4
		}
		families = append(families, family)
	}
	return families
}
