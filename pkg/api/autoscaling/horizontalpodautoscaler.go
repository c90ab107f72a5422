// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// horizontalPodAutoscalerRow declares horizontalpodautoscalers.
func horizontalPodAutoscalerRow() *resource.Row {
	parts := strategy.Parts[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerSpec, autoscalingv2.HorizontalPodAutoscalerStatus](func(o *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscalerSpec, *autoscalingv2.HorizontalPodAutoscalerStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[autoscalingv2.HorizontalPodAutoscalerList](resource.Kind[*autoscalingv2.HorizontalPodAutoscaler]{
		Group: "autoscaling", Version: "v2", Versions: []resource.Version{{Name: "v2"}, v1()}, Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Namespaced: true,
		ShortNames: []string{"hpa"}, Categories: []string{"all"},

		Default:                  defaultHorizontalPodAutoscaler,
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		Validate:                 validateHorizontalPodAutoscaler,
		ValidateUpdate:           validateHorizontalPodAutoscalerUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Reference", Type: "string", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["scaleTargetRef"]},
			{Name: "Targets", Type: "string", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["metrics"]},
			{Name: "MinPods", Type: "string", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["minReplicas"]},
			{Name: "MaxPods", Type: "string", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["maxReplicas"]},
			{Name: "Replicas", Type: "string", Description: autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"]},
			column.Age(),
		},
		Cells: horizontalPodAutoscalerCells,

		Subresources: []resource.Sub[*autoscalingv2.HorizontalPodAutoscaler]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateHorizontalPodAutoscalerStatus},
		},
	})
}
