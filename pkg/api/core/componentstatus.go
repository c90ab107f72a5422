// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// componentStatusRow declares componentstatuses.
func componentStatusRow() *resource.Row {
	return resource.Kind[corev1.ComponentStatus, corev1.ComponentStatusList]{
		Group: "", Version: "v1", Resource: "componentstatuses", Kind: "ComponentStatus",
		ShortNames: []string{"cs"},
		Verbs:      []string{"get", "list"},
		Ephemeral:  true,
	}.Row()
}
