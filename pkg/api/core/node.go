// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// nodeRow declares nodes.
func nodeRow(proxy resource.ConnectFunc) *resource.Row {
	return resource.Of[corev1.NodeList](resource.Kind[*corev1.Node]{
		Group: "", Version: "v1", Resource: "nodes", Kind: "Node",
		ShortNames:    []string{"no"},
		StoragePrefix: "minions",

		Default:                  defaultNode,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		PrepareCreate:            prepareNodeCreate,
		Validate:                 validateNode,
		PrepareUpdate:            prepareNodeUpdate,
		ValidateUpdate:           validateNodeUpdate,
		Warnings:                 warnNode,
		Fields:                   nodeFields,
		FieldPaths:               []string{"spec.unschedulable"},
		SelectableFields:         []string{"spec.unschedulable"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "The status of the node"},
			{Name: "Roles", Type: "string", Description: "The roles of the node"},
			column.Age(),
			{Name: "Version", Type: "string", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"]},
			{Name: "Internal-IP", Type: "string", Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"], Priority: column.Wide},
			{Name: "External-IP", Type: "string", Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"], Priority: column.Wide},
			{Name: "OS-Image", Type: "string", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"], Priority: column.Wide},
			{Name: "Kernel-Version", Type: "string", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"], Priority: column.Wide},
			{Name: "Container-Runtime", Type: "string", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"], Priority: column.Wide},
		},
		Cells: nodeCells,

		Subresources: []resource.Sub[*corev1.Node]{
			{Subresource: resource.Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "NodeProxyOptions"}, Connect: proxy, Traffic: resource.Proxied}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareNodeStatus, ValidateUpdate: validateNodeStatus},
		},
	})
}
