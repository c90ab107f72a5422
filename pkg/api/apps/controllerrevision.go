// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/apiserver/resource"
)

// controllerRevisionRow declares controllerrevisions.
func controllerRevisionRow() *resource.Row {
	return resource.Kind[appsv1.ControllerRevision, appsv1.ControllerRevisionList]{
		Group: "apps", Version: "v1", Resource: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true,

		AllowUnconditionalUpdate: true,
	}.Row()
}
