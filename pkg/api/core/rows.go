// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package core declares the kinds of the core group: pods, services, nodes and what surrounds them.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// Deps is what the group's rows need beyond pure rules. The rows of the zero value have nobody who
// answers their subresources, and allocate nothing.
type Deps struct {
	// Policy is what specifications and templates of pods may contain.
	Policy podspec.Policy
	// Services allocates what services need; nil allocates nothing.
	Services ServiceAllocator
	// Bindings answers bindings, which are about any pod of their name.
	Bindings *resource.Creator
	Pods     PodConnectors
	// Tokens answers serviceaccounts/token.
	Tokens                  *resource.Creator
	NodeProxy, ServiceProxy resource.ConnectFunc
}

// PodConnectors answer the subresources of pods that are no views of them.
type PodConnectors struct {
	Binding, Eviction                     *resource.Creator
	Attach, Exec, Log, PortForward, Proxy resource.ConnectFunc
}

// ServiceAllocator ties addresses and node ports to the writes of services.
type ServiceAllocator interface {
	Hooks() resource.Hooks[*corev1.Service]
	// Restore fills in what services of older servers do not say of their addresses.
	Restore(svc *corev1.Service)
}

// Rows returns the rows of the group, in discovery order.
func Rows(deps Deps) []*resource.Row {
	return []*resource.Row{
		bindingRow(deps.Bindings),
		componentStatusRow(),
		configMapRow(),
		endpointsRow(),
		EventRow(),
		limitRangeRow(),
		namespaceRow(),
		nodeRow(deps.NodeProxy),
		persistentVolumeClaimRow(),
		persistentVolumeRow(),
		podRow(deps.Policy, deps.Pods),
		podTemplateRow(deps.Policy),
		replicationControllerRow(deps.Policy),
		resourceQuotaRow(),
		secretRow(),
		serviceAccountRow(deps.Tokens),
		serviceRow(deps.Services, deps.ServiceProxy),
	}
}
