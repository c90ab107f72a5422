// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// runtimeClassRow declares runtimeclasses.
func runtimeClassRow() *resource.Row {
	return resource.Kind[nodev1.RuntimeClass, nodev1.RuntimeClassList]{
		Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses", Kind: "RuntimeClass",

		AnyFinalizer:        true,
		MetaOnUpdate:        resource.MetaRules{Whole: 1, WholeFirst: true},
		Validate:            validateRuntimeClass,
		ValidateUpdate:      validateRuntimeClassUpdate,
		Warnings:            warnRuntimeClass,
		AllowCreateOnUpdate: true,

		Others: olderRuntimeClasses(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Handler", Type: "string", Description: ""},
			column.Age(),
		},
		Cells: runtimeClassCells,
	}.Row()
}
