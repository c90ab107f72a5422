// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	nodev1 "k8s.io/api/node/v1"

	"keelson.dev/apiserver/resource"
)

// runtimeClassRow declares runtimeclasses.
func runtimeClassRow() *resource.Row {
	return resource.Kind[nodev1.RuntimeClass, nodev1.RuntimeClassList]{
		Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses", Kind: "RuntimeClass",

		Default:             defaultRuntimeClass,
		AllowCreateOnUpdate: true,
	}.Row()
}
