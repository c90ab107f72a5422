// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// leaseRow declares leases.
func leaseRow() *resource.Row {
	return resource.Of[coordinationv1.LeaseList](resource.Kind[*coordinationv1.Lease]{
		Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease", Namespaced: true,

		PrepareCreate:       prepareLeaseCreate,
		AnyFinalizer:        true,
		Validate:            validateLease,
		PrepareUpdate:       prepareLeaseUpdate,
		ValidateUpdate:      validateLeaseUpdate,
		AllowCreateOnUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Holder", Type: "string", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]},
			column.Age(),
		},
		Cells: leaseCells,
	})
}
