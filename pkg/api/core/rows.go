// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package core declares the kinds of the core group: pods, services, nodes and the kinds that they
// use.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// Deps has the dependencies of those functions in the kind table that do more than compute. With
// the zero value, subresources such as logs cannot be served, and no addresses or ports are
// allocated.
type Deps struct {
	// Policy says which pods and pod templates the server accepts.
	Policy podspec.Policy
	// Services allocates the addresses and node ports of services. If it is nil, none are
	// allocated.
	Services ServiceAllocator
	// Bindings creates bindings. A binding binds the pod with the binding's name to a node.
	Bindings *resource.Creator
	Pods     PodConnectors
	// PodCreated is called after a pod has been stored. It may be nil.
	PodCreated func(ctx context.Context, pod *corev1.Pod)
	// Tokens creates tokens for the subresource "token" of service accounts.
	Tokens                  *resource.Creator
	NodeProxy, ServiceProxy resource.ConnectFunc
}

// PodConnectors has the functions that serve subresources of pods that are not a part of the pod,
// such as "log" and "exec".
type PodConnectors struct {
	Binding, Eviction                     *resource.Creator
	Attach, Exec, Log, PortForward, Proxy resource.ConnectFunc
}

// ServiceAllocator allocates and releases addresses and node ports when services are written.
type ServiceAllocator interface {
	Hooks() resource.Hooks[*corev1.Service]
	// Restore sets address fields that are missing in a stored service, because older servers did
	// not set them.
	Restore(svc *corev1.Service)
}

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
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
		podRow(deps),
		podTemplateRow(deps.Policy),
		replicationControllerRow(deps.Policy),
		resourceQuotaRow(),
		secretRow(),
		serviceAccountRow(deps.Tokens),
		serviceRow(deps.Services, deps.ServiceProxy),
	}
}
