// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"

	"keelson.dev/apiserver/resource"
)

// olderEndpointSlices tell by labels where an endpoint is.
func olderEndpointSlices() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(discoveryv1beta1.SchemeGroupVersion.WithKind("EndpointSlice"), func(in *discoveryv1beta1.EndpointSlice, out *discoveryv1.EndpointSlice) {
			for i := range in.Endpoints {
				place(in.Endpoints[i].Topology, &out.Endpoints[i])
			}
		}),
	}
}

func place(topology map[string]string, e *discoveryv1.Endpoint) {
	rest := maps.Clone(topology)
	if zone, ok := rest[corev1.LabelTopologyZone]; ok {
		e.Zone = &zone
		delete(rest, corev1.LabelTopologyZone)
	}
	if host, ok := rest[corev1.LabelHostname]; ok && e.NodeName != nil && host == *e.NodeName {
		delete(rest, corev1.LabelHostname)
	}
	e.DeprecatedTopology = nil
	if len(rest) > 0 {
		e.DeprecatedTopology = rest
	}
}
