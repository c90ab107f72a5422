// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// horizontalPodAutoscalerRow declares horizontalpodautoscalers.
func horizontalPodAutoscalerRow() *resource.Row {
	parts := strategy.Parts[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerSpec, autoscalingv2.HorizontalPodAutoscalerStatus](func(o *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscalerSpec, *autoscalingv2.HorizontalPodAutoscalerStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList]{
		Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Namespaced: true,
		ShortNames: []string{"hpa"}, Categories: []string{"all"},

		Default:                  defaultHorizontalPodAutoscaler,
		PrepareCreate:            parts.ClearStatus,
		PrepareUpdate:            parts.KeepStatus,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[autoscalingv2.HorizontalPodAutoscaler]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
