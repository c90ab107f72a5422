// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// prepareServiceUpdate keeps the status, and forgets what the old type of the
// service needed and the new one does not, unless the client changed it: then it
// stays and is refused.
func prepareServiceUpdate(_ context.Context, svc, old *corev1.Service) {
	svc.Status = old.Status
	spec, was := &svc.Spec, &old.Spec
	if was.Type != corev1.ServiceTypeExternalName && spec.Type == corev1.ServiceTypeExternalName {
		forgetClusterIPs(spec, was)
	}
	if hasNodePorts(was) && !hasNodePorts(spec) && onlyOldNodePorts(spec, was) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if hasHealthPort(was) && !hasHealthPort(spec) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if reachableFromOutside(was) && !reachableFromOutside(spec) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		forgetLoadBalancer(svc, old)
	}
}

// canonicalizeService takes off a name for something outside what is about addresses
// inside: Kubernetes shows none.
func canonicalizeService(svc *corev1.Service) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		svc.Spec.InternalTrafficPolicy = nil
	}
}

func forgetClusterIPs(spec, was *corev1.ServiceSpec) {
	if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if slices.Equal(spec.IPFamilies, was.IPFamilies) {
		spec.IPFamilies = nil
	}
	if ptr.Equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
		spec.IPFamilyPolicy = nil
	}
}

func forgetLoadBalancer(svc, old *corev1.Service) {
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(svc.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			svc.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			svc.Spec.LoadBalancerClass = nil
		}
	}
	svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
}

func onlyOldNodePorts(spec, was *corev1.ServiceSpec) bool {
	for _, port := range spec.Ports {
		old := func(p corev1.ServicePort) bool { return p.NodePort == port.NodePort }
		if port.NodePort != 0 && !slices.ContainsFunc(was.Ports, old) {
			return false
		}
	}
	return true
}

func hasHealthPort(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}
