// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// apiServiceRow declares apiservices.
func apiServiceRow() *resource.Row {
	row := resource.Of[apiregistrationv1.APIServiceList](resource.Kind[*apiregistrationv1.APIService]{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices", Kind: "APIService",
		Categories:    []string{"api-extensions"},
		StoragePrefix: "apiregistration.k8s.io/apiservices",

		Default:        defaultAPIService,
		PrepareCreate:  prepareAPIServiceCreate,
		PrepareUpdate:  prepareAPIServiceUpdate,
		ValidateName:   nameAPIService,
		ResetFields:    []string{"status"},
		AnyFinalizer:   true,
		Validate:       validateAPIService,
		ValidateUpdate: validateAPIServiceUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Service", Type: "string", Description: "The reference to the service that hosts this API endpoint."},
			{Name: "Available", Type: "string", Description: "Whether this service is available."},
			column.Age(),
		},
		Cells: apiServiceCells,

		Subresources: []resource.Sub[*apiregistrationv1.APIService]{
			{Subresource: strategy.View("status", "spec", "metadata").WithoutTable(), PrepareUpdate: prepareAPIServiceStatus, ValidateUpdate: validateAPIServiceStatus},
		},
	})
	row.Codec = codec{registry.Codec(row)}
	return row
}
