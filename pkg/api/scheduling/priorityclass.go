// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// priorityClassRow declares priorityclasses.
func priorityClassRow() *resource.Row {
	return resource.Kind[schedulingv1.PriorityClass, schedulingv1.PriorityClassList]{
		Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses", Kind: "PriorityClass",
		ShortNames: []string{"pc"},

		Default:                  defaultPriorityClass,
		PrepareCreate:            strategy.StartGeneration[schedulingv1.PriorityClass],
		AllowUnconditionalUpdate: true,
	}.Row()
}
