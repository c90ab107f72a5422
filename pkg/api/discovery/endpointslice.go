// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"keelson.dev/apiserver/resource"
)

// endpointSliceRow declares endpointslices.
func endpointSliceRow() *resource.Row {
	return resource.Kind[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList]{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true,

		Default:                  defaultEndpointSlice,
		PrepareCreate:            prepareEndpointSliceCreate,
		PrepareUpdate:            prepareEndpointSliceUpdate,
		AllowUnconditionalUpdate: true,
	}.Row()
}
