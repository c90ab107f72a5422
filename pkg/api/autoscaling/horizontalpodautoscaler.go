// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaling declares horizontal pod autoscalers. They are stored as autoscaling/v2 and
// served as v1 and v2.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		horizontalPodAutoscalerRow(),
	}
}

// horizontalPodAutoscalerRow returns the row of horizontalpodautoscalers in the kind table.
func horizontalPodAutoscalerRow() *resource.Row {
	parts := strategy.Parts[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerSpec,
		autoscalingv2.HorizontalPodAutoscalerStatus](
		func(o *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscalerSpec,
			*autoscalingv2.HorizontalPodAutoscalerStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[autoscalingv2.HorizontalPodAutoscalerList](resource.Kind[*autoscalingv2.HorizontalPodAutoscaler]{
		Group: "autoscaling", Version: "v2", Versions: []resource.Version{{Name: "v2"}, v1()},
		Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Namespaced: true,
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
			{Name: "Reference", Type: "string",
				Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["scaleTargetRef"]},
			{Name: "Targets", Type: "string", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["metrics"]},
			{Name: "MinPods", Type: "string",
				Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["minReplicas"]},
			{Name: "MaxPods", Type: "string",
				Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["maxReplicas"]},
			{Name: "Replicas", Type: "string",
				Description: autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"]},
			column.Age(),
		},
		Cells: horizontalPodAutoscalerCells,

		Subresources: []resource.Sub[*autoscalingv2.HorizontalPodAutoscaler]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateHorizontalPodAutoscalerStatus},
		},
	})
}

const (
	cpuUtilization int32 = 80
	policyPeriod   int32 = 15
)

func defaultHorizontalPodAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	unset.Point(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(cpuUtilization)}
	}
	if b := h.Spec.Behavior; b != nil {
		defaultRules(&b.ScaleUp, ptr.To[int32](0),
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: policyPeriod},
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: policyPeriod})
		// The stabilization window for scaling down stays unset, because the controller has a
		// setting for its default.
		defaultRules(&b.ScaleDown, nil,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: policyPeriod})
	}
}

func defaultRules(rules **autoscalingv2.HPAScalingRules, window *int32, policies ...autoscalingv2.HPAScalingPolicy) {
	r := unset.Make(rules)
	if r.StabilizationWindowSeconds == nil {
		r.StabilizationWindowSeconds = window
	}
	unset.Point(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}

func cpuMetric(utilization int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization},
		},
	}
}

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

// metric returns the text "current/target" of one metric.
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
