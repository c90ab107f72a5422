// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// networkPolicyRow returns the row of the kind table for the resource networkpolicies.
func networkPolicyRow() *resource.Row {
	return resource.Of[networkingv1.NetworkPolicyList](resource.Kind[*networkingv1.NetworkPolicy]{
		Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy", Namespaced: true,
		ShortNames: []string{"netpol"},

		Default:       defaultNetworkPolicy,
		PrepareCreate: strategy.StartGeneration[networkingv1.NetworkPolicy],
		PrepareUpdate: strategy.CountSpec(
			func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec }),
		AllowUnconditionalUpdate: true,
		Validate:                 validateNetworkPolicy,
		ValidateUpdate:           validateNetworkPolicyUpdate,
		Warnings:                 warnNetworkPolicy,

		StoredForms: olderNetworkPolicies(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Pod-Selector", Type: "string", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]},
			column.Age(),
		},
		Cells: networkPolicyCells,
	})
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		unset.Point(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(_ context.Context, p *networkingv1.NetworkPolicy) field.ErrorList {
	return checkPolicy(p, nil)
}

// checkPolicy validates a policy. ranges are the address ranges of the stored policy. Only these
// ranges may have a form that is not canonical.
func checkPolicy(p *networkingv1.NetworkPolicy, ranges []string) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	r.Selector(path.Child("podSelector"), &p.Spec.PodSelector)
	for i, rule := range p.Spec.Ingress {
		policyRule(&r, path.Child("ingress").Index(i), rule.Ports, "from", rule.From, ranges)
	}
	for i, rule := range p.Spec.Egress {
		policyRule(&r, path.Child("egress").Index(i), rule.Ports, "to", rule.To, ranges)
	}
	at := path.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		r.Invalid(at, &p.Spec.PolicyTypes, "may not specify more than two policyTypes")
		return r.Errors
	}
	for i, kind := range p.Spec.PolicyTypes {
		report.OneOf(&r, at.Index(i), kind, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	}
	return r.Errors
}

func validateNetworkPolicyUpdate(_ context.Context, p, old *networkingv1.NetworkPolicy) field.ErrorList {
	var ranges []string
	note := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, peer := range peers {
			if b := peer.IPBlock; b != nil {
				ranges = append(append(ranges, b.CIDR), b.Except...)
			}
		}
	}
	for _, rule := range old.Spec.Ingress {
		note(rule.From)
	}
	for _, rule := range old.Spec.Egress {
		note(rule.To)
	}
	return checkPolicy(p, ranges)
}

func policyRule(r *report.Report, path *field.Path, ports []networkingv1.NetworkPolicyPort, side string,
	peers []networkingv1.NetworkPolicyPeer, ranges []string) {
	for i := range ports {
		policyPort(r, path.Child("ports").Index(i), &ports[i])
	}
	for i := range peers {
		policyPeer(r, path.Child(side).Index(i), &peers[i], ranges)
	}
}

func policyPort(r *report.Report, path *field.Path, p *networkingv1.NetworkPolicyPort) {
	if p.Protocol != nil {
		report.OneOf(r, path.Child("protocol"), *p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	port, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			r.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified")
		}
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			r.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric")
		}
		r.Each(port, p.Port.StrVal, validation.IsValidPortName(p.Port.StrVal))
	default:
		r.Each(port, p.Port.IntVal, validation.IsValidPortNum(int(p.Port.IntVal)))
		if p.EndPort == nil {
			return
		}
		if *p.EndPort < p.Port.IntVal {
			r.Invalid(end, *p.EndPort, "must be greater than or equal to `port`")
		}
		r.Each(end, *p.EndPort, validation.IsValidPortNum(int(*p.EndPort)))
	}
}

func policyPeer(r *report.Report, path *field.Path, p *networkingv1.NetworkPolicyPeer, ranges []string) {
	if p.PodSelector != nil {
		r.Selector(path.Child("podSelector"), p.PodSelector)
	}
	if p.NamespaceSelector != nil {
		r.Selector(path.Child("namespaceSelector"), p.NamespaceSelector)
	}
	bySelector := p.PodSelector != nil || p.NamespaceSelector != nil
	if p.IPBlock == nil {
		if !bySelector {
			r.Required(path, "must specify a peer")
		}
		return
	}
	ipBlock(r, path.Child("ipBlock"), p.IPBlock, ranges)
	if bySelector {
		r.Forbidden(path, "may not specify both ipBlock and another peer")
	}
}

func ipBlock(r *report.Report, path *field.Path, b *networkingv1.IPBlock, ranges []string) {
	if b.CIDR == "" {
		r.Required(path.Child("cidr"), "")
		return
	}
	r.Add(validation.IsValidCIDRForLegacyField(path.Child("cidr"), b.CIDR, true, ranges)...)
	_, all, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return
	}
	size, _ := all.Mask.Size()
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		r.Add(validation.IsValidCIDRForLegacyField(at, text, true, ranges)...)
		_, part, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if n, _ := part.Mask.Size(); n <= size || !all.Contains(part.IP) {
			r.Invalid(at, text, "must be a strict subset of `cidr`")
		}
	}
}

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

func networkPolicyCells(p *networkingv1.NetworkPolicy, env resource.CellEnv) []any {
	return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), env.Age(p.CreationTimestamp)}
}

func olderNetworkPolicies() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[extensionsv1beta1.NetworkPolicy,
		networkingv1.NetworkPolicy](extensionsv1beta1.SchemeGroupVersion.WithKind("NetworkPolicy"), nil)}
}
