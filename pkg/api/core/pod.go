// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// podRow declares pods.
func podRow(p podspec.Policy, c PodConnectors) *resource.Row {
	return resource.Of[corev1.PodList](resource.Kind[*corev1.Pod]{
		Group: "", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true,
		ShortNames: []string{"po"}, Categories: []string{"all"},

		Default:                  defaultPod,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		PrepareCreate:            preparePodCreate,
		Validate:                 podspec.Validate(p, validatePod),
		PrepareUpdate:            preparePodUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validatePodUpdate),
		Warnings:                 warnPod,
		Fields:                   podFields,
		IndexFields:              []string{"spec.nodeName"}, // every kubelet watches the pods of its own node
		FieldPaths:               []string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIPs", "status.nominatedNodeName"},
		SelectableFields:         []string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		GracefulDelete:           gracefulDeletePod,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Ready", Type: "string", Description: "The aggregate readiness state of this pod for accepting traffic."},
			{Name: "Status", Type: "string", Description: "The aggregate status of the containers in this pod."},
			{Name: "Restarts", Type: "string", Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."},
			column.Age(),
			{Name: "IP", Type: "string", Description: corev1.PodStatus{}.SwaggerDoc()["podIP"], Priority: column.Wide},
			{Name: "Node", Type: "string", Description: corev1.PodSpec{}.SwaggerDoc()["nodeName"], Priority: column.Wide},
			{Name: "Nominated Node", Type: "string", Description: corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"], Priority: column.Wide},
			{Name: "Readiness Gates", Type: "string", Description: corev1.PodSpec{}.SwaggerDoc()["readinessGates"], Priority: column.Wide},
		},
		RowConditions: podRowConditions,
		Cells:         podCells,
		CellPaths: []string{
			"metadata.name", "metadata.creationTimestamp", "metadata.deletionTimestamp",
			"spec.containers.name", "spec.initContainers.name", "spec.initContainers.restartPolicy", "spec.nodeName", "spec.readinessGates",
			"status.phase", "status.reason", "status.podIPs", "status.nominatedNodeName",
			"status.conditions.type", "status.conditions.status", "status.conditions.reason",
			"status.containerStatuses.ready", "status.containerStatuses.restartCount", "status.containerStatuses.state", "status.containerStatuses.lastState",
			"status.initContainerStatuses.name", "status.initContainerStatuses.ready", "status.initContainerStatuses.started",
			"status.initContainerStatuses.restartCount", "status.initContainerStatuses.state", "status.initContainerStatuses.lastState",
		},

		Subresources: []resource.Sub[*corev1.Pod]{
			{Subresource: resource.Subresource{Name: "attach", Verbs: []string{"create", "get"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "PodAttachOptions"}, Connect: c.Attach, Traffic: resource.Stream}},
			{Subresource: resource.Subresource{Name: "binding", Verbs: []string{"create"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Binding"}, Create: c.Binding}},
			{Subresource: strategy.View("ephemeralcontainers").WithMetaRules(resource.MetaRules{RepeatCreateChecks: 1}).WithoutTable(), PrepareUpdate: preparePodEphemeralContainers, ValidateUpdate: podspec.ValidateUpdate(p, validatePodEphemeralContainers)},
			{Subresource: resource.Subresource{Name: "eviction", Verbs: []string{"create"}, Kind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, Create: c.Eviction}},
			{Subresource: resource.Subresource{Name: "exec", Verbs: []string{"create", "get"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, Connect: c.Exec, Traffic: resource.Stream}},
			{Subresource: resource.Subresource{Name: "log", Verbs: []string{"get"}, Connect: c.Log, Traffic: resource.Text}},
			{Subresource: resource.Subresource{Name: "portforward", Verbs: []string{"create", "get"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "PodPortForwardOptions"}, Connect: c.PortForward, Traffic: resource.Stream}},
			{Subresource: resource.Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "PodProxyOptions"}, Connect: c.Proxy, Traffic: resource.Proxied}},
			{Subresource: strategy.View("resize").WithMetaRules(resource.MetaRules{RepeatCreateChecks: 1}).WithoutTable(), PrepareUpdate: preparePodResize, ValidateUpdate: podspec.ValidateUpdate(p, validatePodResize)},
			{Subresource: strategy.View("status", "spec", "metadata.deletionTimestamp", "metadata.ownerReferences"), PrepareUpdate: preparePodStatus, ValidateUpdate: podspec.ValidateUpdate(p, validatePodStatus), Warnings: warnPodStatus},
		},
	})
}
