// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/unset"
)

// When an autoscaler is served as v1, these annotations hold the values for which v1 has no fields.
// Kubernetes defines the names of the annotations.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

// carriers returns the keys of all annotations that stand for fields of v2. Objects in v2 do not
// have these annotations.
func carriers() []string {
	return []string{
		metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation,
		"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
	}
}

func withoutCarriers(annotations map[string]string) map[string]string {
	if !slices.ContainsFunc(carriers(), func(key string) bool { _, there := annotations[key]; return there }) {
		return annotations
	}
	out := maps.Clone(annotations)
	for _, key := range carriers() {
		delete(out, key)
	}
	return out
}

// v1 returns the description of the version autoscaling/v1 for the row of the kind table.
func v1() resource.Version {
	return resource.Version{
		Name:        "v1",
		New:         func() resource.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
		NewList:     func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscalerList{} },
		FromStorage: toV1,
		ToStorage:   fromV1,
		Default: func(o resource.Object) {
			if h, ok := o.(*autoscalingv1.HorizontalPodAutoscaler); ok {
				unset.Point(&h.Spec.MinReplicas, 1)
			}
		},
	}
}

// isCPU reports whether m is a target for the average CPU utilization, the only metric for which v1
// has a field.
func isCPU(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
		m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

func toV1(o resource.Object) (resource.Object, error) {
	in, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return nil, fmt.Errorf("convert %T: not a HorizontalPodAutoscaler of autoscaling/v2", o)
	}
	in = in.DeepCopy()
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
		},
	}
	var others []autoscalingv1.MetricSpec
	for _, m := range in.Spec.Metrics {
		switch {
		case !isCPU(m):
			others = append(others, metricToV1(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range in.Status.CurrentMetrics {
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
			m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		current = append(current, statusToV1(m))
	}
	out.Annotations = withoutCarriers(out.Annotations)
	return out, carry(out, others, current, in)
}

// carry writes values that have no fields in v1 into annotations of the object.
func carry(out *autoscalingv1.HorizontalPodAutoscaler, others []autoscalingv1.MetricSpec,
	current []autoscalingv1.MetricStatus, in *autoscalingv2.HorizontalPodAutoscaler) error {
	carried := map[string]any{}
	if len(others) > 0 {
		carried[metricsAnnotation] = others
	}
	if len(current) > 0 {
		carried[currentMetricsAnnotation] = current
	}
	if b := in.Spec.Behavior; b != nil {
		carried[behaviorAnnotation] = behavior{(*rules)(b.ScaleUp), (*rules)(b.ScaleDown)}
	}
	if len(in.Status.Conditions) > 0 {
		carried[conditionsAnnotation] = in.Status.Conditions
	}
	for key, value := range carried {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("annotation %s: %w", key, err)
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[key] = string(text)
	}
	return nil
}

// behavior is the scaling behavior in the form in which Kubernetes writes it into the annotation:
// as JSON with the names of Go fields.
type (
	behavior struct{ ScaleUp, ScaleDown *rules }
	rules    autoscalingv2.HPAScalingRules
)

// MarshalJSON implements json.Marshaler.
func (r *rules) MarshalJSON() ([]byte, error) {
	type policy struct {
		Type                 autoscalingv2.HPAScalingPolicyType
		Value, PeriodSeconds int32
	}
	policies := make([]policy, 0, len(r.Policies))
	for _, p := range r.Policies {
		policies = append(policies, policy(p))
	}
	return json.Marshal(struct {
		StabilizationWindowSeconds *int32
		SelectPolicy               *autoscalingv2.ScalingPolicySelect
		Policies                   []policy
		Tolerance                  any
	}{r.StabilizationWindowSeconds, r.SelectPolicy, policies, r.Tolerance})
}

func fromV1(o resource.Object) (resource.Object, error) {
	in, ok := o.(*autoscalingv1.HorizontalPodAutoscaler)
	if !ok {
		return nil, fmt.Errorf("convert %T: not a HorizontalPodAutoscaler of autoscaling/v1", o)
	}
	in = in.DeepCopy()
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
		},
	}
	out.APIVersion, out.Kind = autoscalingv2.SchemeGroupVersion.String(), "HorizontalPodAutoscaler"
	unpack(in, out)
	out.Annotations = withoutCarriers(out.Annotations)
	return out, nil
}

// unpack sets those fields of the v2 object that v1 does not have, from the annotations and the CPU
// fields of the v1 object. It ignores annotations that it cannot parse.
func unpack(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) {
	var others []autoscalingv1.MetricSpec
	if text, there := in.Annotations[metricsAnnotation]; there && json.Unmarshal([]byte(text), &others) == nil {
		for _, m := range others {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(m))
		}
	}
	if cpu := in.Spec.TargetCPUUtilizationPercentage; cpu != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*cpu))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(cpuUtilization)}
	}
	var b autoscalingv2.HorizontalPodAutoscalerBehavior
	if text, there := in.Annotations[behaviorAnnotation]; there && json.Unmarshal([]byte(text), &b) == nil &&
		(b.ScaleUp != nil || b.ScaleDown != nil) {
		out.Spec.Behavior = &b
	}
	if cpu := in.Status.CurrentCPUUtilizationPercentage; cpu != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: ptr.To(*cpu)}},
		}}
	}
	var current []autoscalingv1.MetricStatus
	if text, there := in.Annotations[currentMetricsAnnotation]; there && json.Unmarshal([]byte(text), &current) == nil {
		out.Status.CurrentMetrics = nil // the annotation has all metrics and more detail
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFromV1(m))
		}
	}
	var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	if text, there := in.Annotations[conditionsAnnotation]; there && json.Unmarshal([]byte(text), &conditions) == nil {
		out.Status.Conditions = conditions
	}
}

func metricToV1(m autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name,
			Selector:    s.Metric.Selector,
			TargetValue: ptr.Deref(s.Target.Value, apiresource.Quantity{}), AverageValue: s.Target.AverageValue,
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: s.Metric.Name, Selector: s.Metric.Selector,
			TargetAverageValue: ptr.Deref(s.Target.AverageValue, apiresource.Quantity{}),
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{Name: s.Name,
			TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, TargetAverageUtilization: s.Target.AverageUtilization,
			TargetAverageValue: s.Target.AverageValue,
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector, TargetValue: s.Target.Value,
			TargetAverageValue: s.Target.AverageValue,
		}
	}
	return out
}

func metricFromV1(m autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Target:          autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &s.TargetValue},
		}
		if s.AverageValue != nil {
			out.Object.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
				AverageValue: s.AverageValue}
			if !s.TargetValue.IsZero() { // v1 requires the field, so zero means unset
				out.Object.Target.Value = &s.TargetValue
			}
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &s.TargetAverageValue},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: s.Name,
			Target: averageTarget(s.TargetAverageUtilization, s.TargetAverageValue)}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, Target: averageTarget(s.TargetAverageUtilization, s.TargetAverageValue),
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: s.TargetValue,
				AverageValue: s.TargetAverageValue},
		}
		if s.TargetValue == nil {
			out.External.Target.Type = autoscalingv2.AverageValueMetricType
		}
	}
	return out
}

func averageTarget(utilization *int32, value *apiresource.Quantity) autoscalingv2.MetricTarget {
	t := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: utilization,
		AverageValue: value}
	if utilization == nil {
		t.Type = autoscalingv2.AverageValueMetricType
	}
	return t
}

func statusToV1(m autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(m.Type)}
	zero := apiresource.Quantity{}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name,
			Selector:     s.Metric.Selector,
			CurrentValue: ptr.Deref(s.Current.Value, zero), AverageValue: s.Current.AverageValue,
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName: s.Metric.Name, Selector: s.Metric.Selector, CurrentAverageValue: ptr.Deref(s.Current.AverageValue, zero),
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: s.Name, CurrentAverageUtilization: s.Current.AverageUtilization,
			CurrentAverageValue: ptr.Deref(s.Current.AverageValue, zero),
		}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: s.Name, Container: s.Container, CurrentAverageUtilization: s.Current.AverageUtilization,
			CurrentAverageValue: ptr.Deref(s.Current.AverageValue, zero),
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector,
			CurrentValue: ptr.Deref(s.Current.Value, zero), CurrentAverageValue: s.Current.AverageValue,
		}
	}
	return out
}

func statusFromV1(m autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Current:         autoscalingv2.MetricValueStatus{Value: &s.CurrentValue, AverageValue: s.AverageValue},
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Current: autoscalingv2.MetricValueStatus{AverageValue: &s.CurrentAverageValue},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{
			Name: s.Name, Current: autoscalingv2.MetricValueStatus{
				AverageUtilization: s.CurrentAverageUtilization, AverageValue: &s.CurrentAverageValue},
		}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name: s.Name, Container: s.Container,
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: s.CurrentAverageUtilization,
				AverageValue: &s.CurrentAverageValue},
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector},
			Current: autoscalingv2.MetricValueStatus{Value: &s.CurrentValue, AverageValue: s.CurrentAverageValue},
		}
	}
	return out
}
