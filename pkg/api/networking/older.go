// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/resource"
)

func olderNetworkPolicies() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[extensionsv1beta1.NetworkPolicy, networkingv1.NetworkPolicy](extensionsv1beta1.SchemeGroupVersion.WithKind("NetworkPolicy"), nil)}
}

// olderIngresses name a backend's service and port beside each other. The two are one form, in
// JSON and in protobuf.
func olderIngresses() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(networkingv1beta1.SchemeGroupVersion.WithKind("Ingress"), ofBeta),
		resource.NewStoredForm(extensionsv1beta1.SchemeGroupVersion.WithKind("Ingress"), ofBeta),
	}
}

func ofBeta(in *networkingv1beta1.Ingress, out *networkingv1.Ingress) {
	if b := in.Spec.Backend; b != nil {
		out.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: b.Resource, Service: serviceOf(b.ServiceName, b.ServicePort)}
	}
	for i := range in.Spec.Rules {
		if http := in.Spec.Rules[i].HTTP; http != nil {
			for j := range http.Paths {
				b := &http.Paths[j].Backend
				completePath(&out.Spec.Rules[i].HTTP.Paths[j], serviceOf(b.ServiceName, b.ServicePort))
			}
		}
	}
}

// completePath sets what a path had otherwise, or had a default for, in the older versions.
func completePath(p *networkingv1.HTTPIngressPath, service *networkingv1.IngressServiceBackend) {
	p.Backend.Service = service
	if p.PathType == nil {
		p.PathType = ptr.To(networkingv1.PathTypeImplementationSpecific)
	}
}

func serviceOf(name string, port intstr.IntOrString) *networkingv1.IngressServiceBackend {
	if name == "" && port == (intstr.IntOrString{}) {
		return nil
	}
	return &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Name: port.StrVal, Number: port.IntVal}}
}
