// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the kind table: the table of the built-in kinds. A row of the table (resource.Row)
// contains everything that the API server needs to serve one kind. Each API group has a package
// below this one, which returns the rows of the group.
package api

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/admissionregistration"
	"keelson.dev/keelson/pkg/api/apiextensions"
	"keelson.dev/keelson/pkg/api/apiregistration"
	"keelson.dev/keelson/pkg/api/apiserverinternal"
	"keelson.dev/keelson/pkg/api/apps"
	"keelson.dev/keelson/pkg/api/authentication"
	"keelson.dev/keelson/pkg/api/authorization"
	"keelson.dev/keelson/pkg/api/autoscaling"
	"keelson.dev/keelson/pkg/api/batch"
	"keelson.dev/keelson/pkg/api/certificates"
	"keelson.dev/keelson/pkg/api/coordination"
	"keelson.dev/keelson/pkg/api/core"
	"keelson.dev/keelson/pkg/api/discovery"
	"keelson.dev/keelson/pkg/api/emulation"
	"keelson.dev/keelson/pkg/api/events"
	"keelson.dev/keelson/pkg/api/flowcontrol"
	"keelson.dev/keelson/pkg/api/networking"
	"keelson.dev/keelson/pkg/api/node"
	"keelson.dev/keelson/pkg/api/podbatches"
	"keelson.dev/keelson/pkg/api/policy"
	"keelson.dev/keelson/pkg/api/rbac"
	"keelson.dev/keelson/pkg/api/resourceclaims"
	"keelson.dev/keelson/pkg/api/scheduling"
	"keelson.dev/keelson/pkg/api/storage"
	"keelson.dev/keelson/pkg/api/storagemigration"
	"keelson.dev/keelson/pkg/release"
)

// Deps has the dependencies of those functions in the kind table that do more than compute, such as
// handlers of subresources. With the zero value, objects can be decoded and validated, but
// subresources such as logs cannot be served, and no addresses or ports are allocated.
type Deps struct {
	// Emulated is the Kubernetes release whose kinds and rules the rows have.
	Emulated release.Emulated
	// Enabled reports whether a feature gate is on. If it is nil, none is on.
	Enabled        func(feature string) bool
	Core           core.Deps
	Authentication authentication.Deps
	Authorization  authorization.Deps
	Certificates   certificates.Deps
	// CheckEscalation checks writes of roles and their bindings. It may be nil.
	CheckEscalation rbac.CheckEscalation
	// CheckParams checks writes of admission policies and their bindings. It may be nil.
	CheckParams admissionregistration.CheckParams
	// Definitions are called when definitions of custom resources are written.
	Definitions resource.Hooks[*apiextensionsv1.CustomResourceDefinition]
	// Claims checks writes of resource claims. It may be nil.
	Claims resourceclaims.Guard
	// Batches has the handlers of bindingbatches and verdictbatches, with which a scheduler writes
	// about many pods in one request.
	Batches podbatches.Deps
}

// Rows returns the kind table: the rows of all built-in resources, in the order in which discovery
// lists them. The server has no other resources except custom resources. Served returns the rows of
// the resources that a server with a given configuration serves.
func Rows(deps Deps) []*resource.Row {
	rows := slices.Concat(
		core.Rows(deps.Core),
		apiregistration.Rows(),
		apps.Rows(deps.Core.Policy),
		events.Rows(),
		authentication.Rows(deps.Authentication),
		authorization.Rows(deps.Authorization),
		autoscaling.Rows(),
		batch.Rows(deps.Core.Policy),
		certificates.Rows(deps.Certificates),
		networking.Rows(),
		policy.Rows(),
		rbac.Rows(deps.CheckEscalation),
		storage.Rows(),
		admissionregistration.Rows(deps.CheckParams),
		apiextensions.Rows(deps.Definitions),
		scheduling.Rows(),
		coordination.Rows(),
		node.Rows(),
		discovery.Rows(),
		resourceclaims.Rows(deps.Claims),
		flowcontrol.Rows(),
		apiserverinternal.Rows(),
		storagemigration.Rows(),
		podbatches.Rows(deps.Batches),
	)
	emulation.Apply(rows, deps.Emulated)
	for _, row := range rows {
		resource.DropGated(row, deps.enabled)
	}
	return rows
}

// enabled reports whether a feature gate is on.
func (d *Deps) enabled(feature string) bool { return d.Enabled != nil && d.Enabled(feature) }
