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
	return resource.Of[nodev1.RuntimeClassList](resource.Kind[*nodev1.RuntimeClass]{
		Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses", Kind: "RuntimeClass",

		AnyFinalizer:        true,
		MetaOnUpdate:        resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:            validateRuntimeClass,
		ValidateUpdate:      validateRuntimeClassUpdate,
		Warnings:            warnRuntimeClass,
		AllowCreateOnUpdate: true,

		StoredForms: olderRuntimeClasses(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Handler", Type: "string", Description: ""},
			column.Age(),
		},
		Cells: runtimeClassCells,
	})
}
