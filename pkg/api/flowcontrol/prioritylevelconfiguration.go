// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// priorityLevelConfigurationRow declares prioritylevelconfigurations.
func priorityLevelConfigurationRow() *resource.Row {
	parts := strategy.Parts[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus](func(o *flowcontrolv1.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfigurationSpec, *flowcontrolv1.PriorityLevelConfigurationStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList]{
		Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations", Kind: "PriorityLevelConfiguration",

		Default:                  defaultPriorityLevelConfiguration,
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[flowcontrolv1.PriorityLevelConfiguration]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndMeta},
		},
	}.Row()
}
