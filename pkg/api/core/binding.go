// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// bindingRow declares bindings.
func bindingRow(create *resource.Creator) *resource.Row {
	return resource.Of[metav1.List](resource.Kind[*corev1.Binding]{
		Group: "", Version: "v1", Resource: "bindings", Kind: "Binding", Namespaced: true,
		Verbs:     []string{"create"},
		Ephemeral: true,
		Create:    create,
	})
}
