// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// full returns an autoscaler that uses every feature of v2 for which v1 has no field.
func full() *autoscalingv2.HorizontalPodAutoscaler {
	one, two := apiresource.MustParse("1"), apiresource.MustParse("2k")
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	named := autoscalingv2.MetricIdentifier{Name: "requests", Selector: selector}
	object := autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "s", APIVersion: "v1"}
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Name: "h", Annotations: map[string]string{"mine": "kept"}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"},
			MinReplicas:    ptr.To[int32](2), MaxReplicas: 9,
			Metrics: []autoscalingv2.MetricSpec{
				{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: object,
					Metric: named, Target: autoscalingv2.MetricTarget{Type: "Value", Value: &one}}},
				{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: object,
					Metric: named, Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &two}}},
				{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: named,
					Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &two}}},
				{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "memory",
					Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &two}}},
				{Type: "ContainerResource",
					ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "c",
						Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: ptr.To[int32](50)}}},
				{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: named,
					Target: autoscalingv2.MetricTarget{Type: "Value", Value: &one}}},
				{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: named,
					Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &one}}},
				cpuMetric(70),
			},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: ptr.To[int32](30),
				SelectPolicy:               ptr.To(autoscalingv2.MinChangePolicySelect), Tolerance: &one,
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: "Pods", Value: 3, PeriodSeconds: 60}},
			}},
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: ptr.To[int64](4), CurrentReplicas: 3, DesiredReplicas: 4,
			CurrentMetrics: []autoscalingv2.MetricStatus{
				{Type: "Object", Object: &autoscalingv2.ObjectMetricStatus{DescribedObject: object,
					Metric: named, Current: autoscalingv2.MetricValueStatus{Value: &one}}},
				{Type: "Pods", Pods: &autoscalingv2.PodsMetricStatus{Metric: named,
					Current: autoscalingv2.MetricValueStatus{AverageValue: &two}}},
				{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU,
					Current: autoscalingv2.MetricValueStatus{AverageValue: &one, AverageUtilization: ptr.To[int32](66)}}},
				{Type: "ContainerResource",
					ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: "cpu", Container: "c",
						Current: autoscalingv2.MetricValueStatus{AverageValue: &one}}},
				{Type: "External", External: &autoscalingv2.ExternalMetricStatus{Metric: named,
					Current: autoscalingv2.MetricValueStatus{Value: &one}}},
			},
			Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
				{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: "ReadyForNewScale"}},
		},
	}
}

func TestV1CarriesEverything(t *testing.T) {
	in := full()
	mid, err := toV1(in)
	if err != nil {
		t.Fatal(err)
	}
	h := mid.(*autoscalingv1.HorizontalPodAutoscaler)
	if *h.Spec.TargetCPUUtilizationPercentage != 70 || *h.Status.CurrentCPUUtilizationPercentage != 66 ||
		len(h.Annotations) != 5 {
		t.Errorf("as v1: %+v", h)
	}
	const behavior = `{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":30,"SelectPolicy":"Min",` +
		`"Policies":[{"Type":"Pods","Value":3,"PeriodSeconds":60}],"Tolerance":"1"}}`
	if got := h.Annotations[behaviorAnnotation]; got != behavior {
		t.Errorf("behavior as Kubernetes writes it: %s", got)
	}
	out, err := fromV1(h)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(full(), out); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(full(), in); d != "" {
		t.Error("the stored object was changed:", d)
	}
}

func TestV1Defaults(t *testing.T) {
	h := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metricsAnnotation: "not JSON",
			behaviorAnnotation: "{}"}}}
	v1().Default(h)
	o, err := fromV1(h)
	if err != nil {
		t.Fatal(err)
	}
	out := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if *out.Spec.MinReplicas != 1 || len(out.Spec.Metrics) != 1 ||
		*out.Spec.Metrics[0].Resource.Target.AverageUtilization != 80 || out.Spec.Behavior != nil ||
		len(out.Annotations) > 0 {
		t.Errorf("%+v", out)
	}
}
