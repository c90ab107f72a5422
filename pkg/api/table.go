// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the kind table of the built-in kinds: everything that the API
// server knows of them is in the rows that Rows returns, and each group has a
// package of its own below this one.
package api

import (
	"slices"

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
	"keelson.dev/keelson/pkg/api/dynamic"
	"keelson.dev/keelson/pkg/api/events"
	"keelson.dev/keelson/pkg/api/flowcontrol"
	"keelson.dev/keelson/pkg/api/networking"
	"keelson.dev/keelson/pkg/api/node"
	"keelson.dev/keelson/pkg/api/policy"
	"keelson.dev/keelson/pkg/api/rbac"
	"keelson.dev/keelson/pkg/api/scheduling"
	"keelson.dev/keelson/pkg/api/storage"
	"keelson.dev/keelson/pkg/api/storagemigration"
)

// Rows returns every built-in resource, in discovery order. A resource that is
// not among them does not exist. Optional ones are served where they are asked for
// (Served).
func Rows() []*resource.Row {
	return slices.Concat(
		core.Rows(),
		apiregistration.Rows(),
		apps.Rows(),
		events.Rows(),
		authentication.Rows(),
		authorization.Rows(),
		autoscaling.Rows(),
		batch.Rows(),
		certificates.Rows(),
		networking.Rows(),
		policy.Rows(),
		rbac.Rows(),
		storage.Rows(),
		admissionregistration.Rows(),
		apiextensions.Rows(),
		scheduling.Rows(),
		coordination.Rows(),
		node.Rows(),
		discovery.Rows(),
		dynamic.Rows(),
		flowcontrol.Rows(),
		apiserverinternal.Rows(),
		storagemigration.Rows(),
	)
}
