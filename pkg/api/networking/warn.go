// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func warnNetworkPolicy(_ context.Context, p, _ *networkingv1.NetworkPolicy) []string {
	var warnings []string
	peers := func(peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i := range peers {
			block := peers[i].IPBlock
			if block == nil {
				continue
			}
			at := path.Index(i).Child("ipBlock")
			warnings = append(warnings, validation.GetWarningsForCIDR(at.Child("cidr"), block.CIDR)...)
			for j, except := range block.Except {
				warnings = append(warnings, validation.GetWarningsForCIDR(at.Child("except").Index(j), except)...)
			}
		}
	}
	spec := field.NewPath("spec")
	for i := range p.Spec.Ingress {
		peers(p.Spec.Ingress[i].From, spec.Child("ingress").Index(i).Child("from"))
	}
	for i := range p.Spec.Egress {
		peers(p.Spec.Egress[i].To, spec.Child("egress").Index(i).Child("to"))
	}
	return warnings
}

func warnIngress(_ context.Context, i, old *networkingv1.Ingress) []string {
	const key = "kubernetes.io/ingress.class"
	if _, there := i.Annotations[key]; old != nil || !there || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", key)}
}

func warnIngressStatus(_ context.Context, i, _ *networkingv1.Ingress) []string {
	var warnings []string
	for n, ingress := range i.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(n), ingress.IP)...)
		}
	}
	return warnings
}
