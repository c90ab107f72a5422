// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func serviceCells(svc *corev1.Service, env resource.CellEnv) []any {
	ip := column.None
	if len(svc.Spec.ClusterIPs) > 0 {
		ip = svc.Spec.ClusterIPs[0]
	}
	return []any{
		svc.Name, string(svc.Spec.Type), ip, externalAddress(svc), column.OrNone(servicePorts(svc.Spec.Ports)),
		env.Age(svc.CreationTimestamp), labels.FormatLabels(svc.Spec.Selector),
	}
}

func externalAddress(svc *corev1.Service) string {
	switch svc.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return column.OrNone(strings.Join(svc.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeLoadBalancer:
		found := sets.New[string]()
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			if ingress.IP != "" {
				found.Insert(ingress.IP)
			} else if ingress.Hostname != "" {
				found.Insert(ingress.Hostname)
			}
		}
		if all := append(sets.List(found), svc.Spec.ExternalIPs...); len(all) > 0 {
			return strings.Join(all, ",")
		}
		return "<pending>"
	case corev1.ServiceTypeExternalName:
		return svc.Spec.ExternalName
	default:
		return "<unknown>"
	}
}

func servicePorts(ports []corev1.ServicePort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			texts[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	return strings.Join(texts, ",")
}
