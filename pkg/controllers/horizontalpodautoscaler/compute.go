// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/api/quantity"
)

// pass is one evaluation of all metrics of an autoscaler.
type pass struct {
	*Controller
	hpa      *autoscalingv2.HorizontalPodAutoscaler
	scale    *autoscalingv1.Scale
	selector labels.Selector
	pods     []*v1.Pod
}

// proposal is the number of replicas that a metric requires, with the metric's name and status.
type proposal struct {
	n      int32
	metric string
	status autoscalingv2.MetricStatus
}

// failure is the error of a metric that could not be evaluated: the reason for the event, a
// description of the metric (what), and the error.
type failure struct {
	reason, what string
	err          error
}

// evaluateAll evaluates all metrics and returns the highest proposal. It returns an error if no
// metric can be evaluated. It also returns an error instead of a proposal to scale down if some
// metric cannot be evaluated, because that metric might require more pods.
func (p *pass) evaluateAll(ctx context.Context) (proposal, []autoscalingv2.MetricStatus, error) {
	statuses := make([]autoscalingv2.MetricStatus, len(p.hpa.Spec.Metrics))
	var out proposal
	var first *failure
	invalid := 0
	for i, spec := range p.hpa.Spec.Metrics {
		began := p.Clock.Now()
		got, failed := p.evaluateMetric(ctx, spec)
		var err error
		if failed != nil {
			err = failed.err
		}
		p.instruments.computed(spec.Type, p.hpa.Status.CurrentReplicas, got.n, err, p.Clock.Since(began))
		if failed != nil {
			p.Events.Event(p.hpa, v1.EventTypeWarning, failed.reason, failed.err.Error())
			if first == nil {
				first = failed
			}
			invalid++
			continue
		}
		statuses[i] = got.status
		if out.n == 0 || got.n > out.n {
			out = got
		}
	}
	if invalid >= len(statuses) || invalid > 0 && out.n < p.scale.Spec.Replicas {
		p.setCondition(p.hpa, autoscalingv2.ScalingActive, v1.ConditionFalse, first.reason,
			"the HPA was unable to compute the replica count: "+first.err.Error())
		return out, statuses,
			fmt.Errorf("invalid metrics (%v invalid out of %v), first error is: failed to get %s: %w", invalid,
				len(statuses), first.what, first.err)
	}
	p.setCondition(p.hpa, autoscalingv2.ScalingActive, v1.ConditionTrue, "ValidMetricFound",
		"the HPA was able to successfully calculate a replica count from "+out.metric)
	return out, statuses, nil
}

// evaluateMetric evaluates one metric of the autoscaler's spec.
func (p *pass) evaluateMetric(ctx context.Context, spec autoscalingv2.MetricSpec) (proposal, *failure) {
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		m := spec.Resource
		n, current, name, err := p.ofResource(ctx, m.Name, "", m.Target)
		if err != nil {
			return proposal{}, &failure{"FailedGetResourceMetric", string(m.Name) + " resource metric value", err}
		}
		return proposal{n, name,
			autoscalingv2.MetricStatus{Type: spec.Type,
				Resource: &autoscalingv2.ResourceMetricStatus{Name: m.Name, Current: current}}}, nil
	case autoscalingv2.ContainerResourceMetricSourceType:
		m := spec.ContainerResource
		n, current, name, err := p.ofResource(ctx, m.Name, m.Container, m.Target)
		if err != nil {
			return proposal{}, &failure{"FailedGetContainerResourceMetric", m.Container + " container metric value", err}
		}
		return proposal{n, name,
			autoscalingv2.MetricStatus{Type: spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{
				Name: m.Name, Container: m.Container, Current: current,
			}}}, nil
	case autoscalingv2.PodsMetricSourceType:
		got, err := p.ofPods(ctx, spec.Pods)
		return got, failedIf("FailedGetPodsMetric", "pods metric value", err)
	case autoscalingv2.ObjectMetricSourceType:
		got, err := p.ofObject(ctx, spec.Object)
		return got, failedIf("FailedGetObjectMetric", "object metric value", err)
	case autoscalingv2.ExternalMetricSourceType:
		got, err := p.ofExternal(ctx, spec.External)
		return got, failedIf("FailedGetExternalMetric", spec.External.Metric.Name+" external metric value", err)
	}
	return proposal{}, &failure{"InvalidMetricSourceType", "metric",
		specError{fmt.Errorf("unknown metric source type %q", string(spec.Type))}}
}

func failedIf(reason, what string, err error) *failure {
	if err == nil {
		return nil
	}
	return &failure{reason, what, err}
}

func (p *pass) ofResource(ctx context.Context, name v1.ResourceName, container string,
	target autoscalingv2.MetricTarget) (int32, autoscalingv2.MetricValueStatus, string, error) {
	var current autoscalingv2.MetricValueStatus
	what := "usage"
	if target.AverageValue == nil {
		what = "utilization"
	}
	if target.AverageValue == nil && target.AverageUtilization == nil {
		return 0, current, "", errors.New("invalid resource metric source: neither an average utilization " +
			"target nor an average value (usage) target was set")
	}
	s, err := p.metrics.resource(ctx, name, p.hpa.Namespace, p.selector, container)
	if err != nil {
		return 0, current, "", fmt.Errorf("failed to get %s %s: unable to get metrics for resource %s: %w",
			name, what, name, err)
	}
	label := string(name) + " resource"
	var m measure
	if target.AverageValue != nil {
		m = ofAverage(quantity.Milli(*target.AverageValue))
	} else {
		requests, err := requestsOf(p.pods, container, name)
		if err != nil {
			return 0, current, "", fmt.Errorf("failed to get %s %s: %w", name, what, err)
		}
		m = ofRequests(requests, *target.AverageUtilization)
		label += " utilization (percentage of request)"
		if container != "" {
			label = string(name) + " container resource utilization (percentage of request)"
		}
	}
	starts := neverStarting
	if now := p.Clock.Now(); name == v1.ResourceCPU {
		starts = func(pod *v1.Pod, x sample) bool { return starting(pod, x, p.Options.Autoscaling, now) }
	}
	n, u, err := propose(p.scale.Spec.Replicas, p.pods, s, m, p.tolerance(), starts)
	if err != nil {
		return 0, current, "", fmt.Errorf("failed to get %s %s: %w", name, what, err)
	}
	format := resource.DecimalSI
	if name == v1.ResourceMemory {
		format = resource.BinarySI
	}
	current.AverageValue = resource.NewMilliQuantity(u.average, format)
	if target.AverageValue == nil {
		current.AverageUtilization = &u.percent
	}
	return n, current, label, nil
}

func (p *pass) ofPods(ctx context.Context, m *autoscalingv2.PodsMetricSource) (proposal, error) {
	metricSelector, err := metav1.LabelSelectorAsSelector(m.Metric.Selector)
	if err != nil {
		return proposal{}, fmt.Errorf("selector: %w", err)
	}
	s, err := p.metrics.pods(ctx, m.Metric.Name, p.hpa.Namespace, p.selector, metricSelector)
	if err != nil {
		return proposal{}, fmt.Errorf("unable to get metric %s: %w", m.Metric.Name, err)
	}
	n, u, err := propose(p.scale.Spec.Replicas, p.pods, s, ofAverage(quantity.Milli(*m.Target.AverageValue)),
		p.tolerance(), neverStarting)
	if err != nil {
		return proposal{}, err
	}
	return proposal{n, "pods metric " + m.Metric.Name, autoscalingv2.MetricStatus{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricStatus{Metric: m.Metric,
			Current: autoscalingv2.MetricValueStatus{AverageValue: milli(u.average)}},
	}}, nil
}

func (p *pass) ofObject(ctx context.Context, m *autoscalingv2.ObjectMetricSource) (proposal, error) {
	metricSelector, err := metav1.LabelSelectorAsSelector(m.Metric.Selector)
	if err != nil {
		return proposal{}, fmt.Errorf("selector: %w", err)
	}
	total, err := p.metrics.object(ctx, m.Metric.Name, p.hpa.Namespace, m.DescribedObject, metricSelector)
	if err != nil {
		return proposal{}, fmt.Errorf("unable to get metric %s on %s %s/%s: %w", m.Metric.Name,
			m.DescribedObject.Kind, p.hpa.Namespace, m.DescribedObject.Name, err)
	}
	n, current, err := p.ofTotal(m.Target, total)
	if err != nil {
		return proposal{}, fmt.Errorf("invalid object metric source: %w", err)
	}
	return proposal{n, fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name), autoscalingv2.MetricStatus{
		Type:   autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricStatus{DescribedObject: m.DescribedObject, Metric: m.Metric, Current: current},
	}}, nil
}

func (p *pass) ofExternal(ctx context.Context, m *autoscalingv2.ExternalMetricSource) (proposal, error) {
	metricSelector, err := metav1.LabelSelectorAsSelector(m.Metric.Selector)
	if err != nil {
		return proposal{}, fmt.Errorf("selector: %w", err)
	}
	total, err := p.metrics.external(ctx, m.Metric.Name, p.hpa.Namespace, metricSelector)
	if err != nil {
		return proposal{}, fmt.Errorf("unable to get external metric %s/%s/%+v: %w", p.hpa.Namespace,
			m.Metric.Name, m.Metric.Selector, err)
	}
	n, current, err := p.ofTotal(m.Target, total)
	if err != nil {
		return proposal{}, fmt.Errorf("invalid external metric source: %w", err)
	}
	return proposal{n, fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector),
		autoscalingv2.MetricStatus{
			Type:     autoscalingv2.ExternalMetricSourceType,
			External: &autoscalingv2.ExternalMetricStatus{Metric: m.Metric, Current: current},
		}}, nil
}

// ofTotal returns the number of replicas for a metric with one total value, such as an object's
// metric. The target is either a total value or an average value per pod.
func (p *pass) ofTotal(target autoscalingv2.MetricTarget, total int64) (int32, autoscalingv2.MetricValueStatus, error) {
	switch {
	case target.AverageValue != nil:
		n, average := perPod(p.scale.Spec.Replicas, p.scale.Status.Replicas, total,
			quantity.Milli(*target.AverageValue), p.tolerance())
		return n, autoscalingv2.MetricValueStatus{AverageValue: milli(average)}, nil
	case target.Value != nil:
		n, err := byRatio(p.scale.Spec.Replicas, float64(total)/float64(quantity.Milli(*target.Value)), p.pods, p.tolerance())
		return n, autoscalingv2.MetricValueStatus{Value: milli(total)}, err
	}
	return 0, autoscalingv2.MetricValueStatus{}, errors.New("neither a value target nor an average value target was set")
}

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }

// tolerance returns the autoscaler's tolerances: those in its behavior field, otherwise the
// default.
func (p *pass) tolerance() tolerance {
	standard := p.Options.Autoscaling.Tolerance
	t := tolerance{standard, standard}
	if b := p.hpa.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}
