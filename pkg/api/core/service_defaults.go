// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/unset"
)

// defaultService fills what does not depend on the cluster; addresses, families
// and node ports are the server's to allocate.
func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	unset.Fill(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	unset.Fill(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		unset.Fill(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if reachableFromOutside(spec) {
		unset.Fill(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeClusterIP || hasNodePorts(spec) {
		unset.Point(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		unset.Point(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range svc.Status.LoadBalancer.Ingress {
			if ingress := &svc.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				unset.Point(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func reachableFromOutside(spec *corev1.ServiceSpec) bool {
	return hasNodePorts(spec) || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

func hasNodePorts(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}
