// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podbatches declares the kinds BindingBatch and VerdictBatch of the group
// scheduling.keelson.dev. A scheduler creates such a batch to write to many pods in one request.
// Batches are not stored.
package podbatches

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/resource"
)

// Deps has the functions that handle requests with batches. A server whose kind table is made from
// the zero value cannot handle such requests.
type Deps struct{ Bindings, Verdicts resource.ConnectFunc }

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{bindingBatchRow(deps.Bindings), verdictBatchRow(deps.Verdicts)}
}

// bindingBatchRow returns the row of the kind table for the resource bindingbatches.
func bindingBatchRow(handle resource.ConnectFunc) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*v1alpha1.BindingBatch]{
		Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "bindingbatches", Kind: "BindingBatch",
		Verbs:       []string{"create"},
		OnByDefault: true,
		Ephemeral:   true,
		Connect:     handle,
	})
}

// verdictBatchRow returns the row of the kind table for the resource verdictbatches.
func verdictBatchRow(handle resource.ConnectFunc) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*v1alpha1.VerdictBatch]{
		Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "verdictbatches", Kind: "VerdictBatch",
		Verbs:       []string{"create"},
		OnByDefault: true,
		Ephemeral:   true,
		Connect:     handle,
	})
}
