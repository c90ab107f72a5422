// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

func validateEndpoints(_ context.Context, e *corev1.Endpoints) field.ErrorList {
	var r report.Report
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			r.Required(at, "must specify `addresses` or `notReadyAddresses`")
		}
		for j := range s.Addresses {
			checkEndpointAddress(&r, &s.Addresses[j], at.Child("addresses").Index(j))
		}
		for j := range s.NotReadyAddresses {
			checkEndpointAddress(&r, &s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))
		}
		for j := range s.Ports {
			checkEndpointPort(&r, &s.Ports[j], len(s.Ports) > 1, at.Child("ports").Index(j))
		}
	}
	return r.Errors
}

func checkEndpointAddress(r *report.Report, a *corev1.EndpointAddress, at *field.Path) {
	r.Add(validation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, nil)...)
	if a.Hostname != "" {
		r.Label(at.Child("hostname"), a.Hostname)
	}
	if a.NodeName != nil {
		r.Each(at.Child("nodeName"), *a.NodeName, naming.NameIsDNSSubdomain(*a.NodeName, false))
	}
	r.EndpointIP(at.Child("ip"), a.IP)
}

func checkEndpointPort(r *report.Report, p *corev1.EndpointPort, named bool, at *field.Path) {
	if p.Name != "" {
		r.Label(at.Child("name"), p.Name)
	} else if named {
		r.Required(at.Child("name"), "")
	}
	r.Each(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))
	report.OneOfRequired(r, at.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	if p.AppProtocol != nil {
		r.QualifiedName(at.Child("appProtocol"), *p.AppProtocol)
	}
}

// validateEndpointsUpdate lets subsets that did not change be as they are.
func validateEndpointsUpdate(ctx context.Context, e, old *corev1.Endpoints) field.ErrorList {
	if equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	return validateEndpoints(ctx, e)
}
