// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/unset"
)

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
		// The window of scaling down stays unset: it is the controller's setting.
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
