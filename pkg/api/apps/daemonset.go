// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// daemonSetRow declares daemonsets.
func daemonSetRow() *resource.Row {
	parts := strategy.Parts[appsv1.DaemonSet, appsv1.DaemonSetSpec, appsv1.DaemonSetStatus](func(o *appsv1.DaemonSet) (*appsv1.DaemonSetSpec, *appsv1.DaemonSetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[appsv1.DaemonSet, appsv1.DaemonSetList]{
		Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet", Namespaced: true,
		ShortNames: []string{"ds"}, Categories: []string{"all"},

		Default:                  defaultDaemonSet,
		PrepareCreate:            prepareDaemonSetCreate,
		PrepareUpdate:            prepareDaemonSetUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[appsv1.DaemonSet]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
