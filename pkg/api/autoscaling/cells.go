// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func horizontalPodAutoscalerCells(h *autoscalingv2.HorizontalPodAutoscaler, env resource.CellEnv) []any {
	return []any{
		h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, metrics(h),
		column.Deref(h.Spec.MinReplicas, column.Unset), int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas),
		env.Age(h.CreationTimestamp),
	}
}

const shownMetrics = 2

func metrics(h *autoscalingv2.HorizontalPodAutoscaler) string {
	if len(h.Spec.Metrics) == 0 {
		return column.None
	}
	texts := make([]string, len(h.Spec.Metrics))
	for i := range h.Spec.Metrics {
		var status *autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			status = &h.Status.CurrentMetrics[i]
		}
		texts[i] = metric(&h.Spec.Metrics[i], status)
	}
	if len(texts) > shownMetrics {
		return fmt.Sprintf("%s + %d more...", strings.Join(texts[:shownMetrics], ", "), len(texts)-shownMetrics)
	}
	return strings.Join(texts, ", ")
}

// metric shows the current value against the target.
func metric(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	if status == nil {
		status = &autoscalingv2.MetricStatus{}
	}
	switch spec.Type {
	case autoscalingv2.ExternalMetricSourceType:
		var current *autoscalingv2.MetricValueStatus
		if status.External != nil {
			current = &status.External.Current
		}
		return valueOrAverage(&spec.External.Target, current)
	case autoscalingv2.ObjectMetricSourceType:
		var current *autoscalingv2.MetricValueStatus
		if status.Object != nil {
			current = &status.Object.Current
		}
		return valueOrAverage(&spec.Object.Target, current)
	case autoscalingv2.PodsMetricSourceType:
		current := unknown
		if status.Pods != nil {
			current = status.Pods.Current.AverageValue.String()
		}
		return current + "/" + spec.Pods.Target.AverageValue.String()
	case autoscalingv2.ResourceMetricSourceType:
		var current *autoscalingv2.MetricValueStatus
		if status.Resource != nil {
			current = &status.Resource.Current
		}
		return fmt.Sprintf("%s: %s", spec.Resource.Name, utilization(&spec.Resource.Target, current))
	case autoscalingv2.ContainerResourceMetricSourceType:
		var current *autoscalingv2.MetricValueStatus
		if status.ContainerResource != nil {
			current = &status.ContainerResource.Current
		}
		return fmt.Sprintf("%s: %s", spec.ContainerResource.Name, utilization(&spec.ContainerResource.Target, current))
	default:
		return "<unknown type>"
	}
}

const unknown = "<unknown>"

func valueOrAverage(target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	is := unknown
	if target.AverageValue != nil {
		if current != nil && current.AverageValue != nil {
			is = current.AverageValue.String()
		}
		return is + "/" + target.AverageValue.String() + " (avg)"
	}
	if current != nil {
		is = current.Value.String()
	}
	return is + "/" + target.Value.String()
}

func utilization(target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	is := unknown
	if target.AverageValue != nil {
		if current != nil {
			is = current.AverageValue.String()
		}
		return is + "/" + target.AverageValue.String()
	}
	if current != nil && current.AverageUtilization != nil {
		is = fmt.Sprintf("%d%%", *current.AverageUtilization)
	}
	want := "<auto>"
	if target.AverageUtilization != nil {
		want = fmt.Sprintf("%d%%", *target.AverageUtilization)
	}
	return is + "/" + want
}
