// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// nodeRow declares nodes.
func nodeRow() *resource.Row {
	return resource.Kind[corev1.Node, corev1.NodeList]{
		Group: "", Version: "v1", Resource: "nodes", Kind: "Node",
		ShortNames:    []string{"no"},
		StoragePrefix: "minions",

		Default:                  defaultNode,
		PrepareCreate:            prepareNodeCreate,
		PrepareUpdate:            prepareNodeUpdate,
		Fields:                   nodeFields,
		SelectableFields:         []string{"spec.unschedulable"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[corev1.Node]{
			{Subresource: resource.Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "NodeProxyOptions"}}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareNodeStatus},
		},
	}.Row()
}
