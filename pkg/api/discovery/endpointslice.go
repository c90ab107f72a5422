// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// endpointSliceRow declares endpointslices.
func endpointSliceRow() *resource.Row {
	return resource.Of[discoveryv1.EndpointSliceList](resource.Kind[*discoveryv1.EndpointSlice]{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true,

		Default:                  defaultEndpointSlice,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		PrepareCreate:            prepareEndpointSliceCreate,
		Validate:                 validateEndpointSlice,
		PrepareUpdate:            prepareEndpointSliceUpdate,
		ValidateUpdate:           validateEndpointSliceUpdate,
		Warnings:                 warnEndpointSlice,
		AllowUnconditionalUpdate: true,

		StoredForms: olderEndpointSlices(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "AddressType", Type: "string", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["addressType"]},
			{Name: "Ports", Type: "string", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["ports"]},
			{Name: "Endpoints", Type: "string", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["endpoints"]},
			column.Age(),
		},
		Cells: endpointSliceCells,
	})
}
