// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func warnService(_ context.Context, s, _ *corev1.Service) []string {
	var warnings []string
	spec, path := &s.Spec, field.NewPath("spec")
	if _, there := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; there {
		warnings = append(warnings, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	if headless {
		warnings = append(warnings, warnHeadless(spec)...)
	}
	for i, ip := range spec.ExternalIPs {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	external := spec.Type == corev1.ServiceTypeExternalName
	if len(spec.ExternalIPs) > 0 && !headless && !external {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if external && len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName))
	}
	if !external && spec.ExternalName != "" {
		warnings = append(warnings, fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName))
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return warnings
}

func warnHeadless(spec *corev1.ServiceSpec) []string {
	var warnings []string
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
	}
	if len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, "spec.externalIPs is ignored for headless services")
	}
	if spec.SessionAffinity != corev1.ServiceAffinityNone {
		warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
	}
	return warnings
}

func warnServiceStatus(_ context.Context, s, _ *corev1.Service) []string {
	var warnings []string
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), ingress.IP)...)
		}
	}
	return warnings
}
