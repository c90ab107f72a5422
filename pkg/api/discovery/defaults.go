// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		unset.Point(&s.Ports[i].Name, "")
		unset.Point(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func prepareEndpointSliceCreate(_ context.Context, s *discoveryv1.EndpointSlice) {
	s.Generation = 1
	dropTopology(s)
}

// prepareEndpointSliceUpdate counts changes of everything but metadata, and of labels.
func prepareEndpointSliceUpdate(_ context.Context, s, old *discoveryv1.EndpointSlice) {
	content := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		c := *s
		c.ObjectMeta = metav1.ObjectMeta{Labels: s.Labels}
		return &c
	}
	strategy.Count(s, old, equality.Semantic.DeepEqual(content(s), content(old)))
	if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		dropTopology(s)
	}
}

// dropTopology drops a map of v1beta1 that v1 shows but does not take.
func dropTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}
