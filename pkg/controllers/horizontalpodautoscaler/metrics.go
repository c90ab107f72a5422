// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetrics "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	resourcemetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"keelson.dev/api/quantity"
)

// sample is the usage of a pod, in thousandths of the metric's unit: the average over a time
// window. The field at is the end of this window.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration
}

// samples are the measured values of a metric of pods, by pod name.
type samples map[string]sample

// defaultWindow is the time window of a custom metric that does not state its window.
const defaultWindow = time.Minute

// metrics reads the metrics APIs. They may be missing in a cluster.
type metrics struct {
	client rest.Interface
	mapper meta.RESTMapper
}

func (m *metrics) get(ctx context.Context, into any, selector, metricSelector labels.Selector, path ...string) error {
	r := m.client.Get().AbsPath(append([]string{"/apis"}, path...)...).SetHeader("Accept", "application/json")
	if selector != nil {
		r = r.Param("labelSelector", selector.String())
	}
	if metricSelector != nil {
		r = r.Param("metricLabelSelector", metricSelector.String())
	}
	body, err := r.Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// resource returns how much of a resource each selected pod uses. If container is not "", only this
// container is counted.
func (m *metrics) resource(ctx context.Context, name v1.ResourceName, namespace string,
	selector labels.Selector, container string) (samples, error) {
	var list resourcemetrics.PodMetricsList
	if err := m.get(ctx, &list, selector, nil, "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", notServed(err, "pods.metrics.k8s.io"))
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	out := samples{}
	for _, pod := range list.Items {
		if value, ok := usedBy(pod.Containers, name, container); ok {
			out[pod.Name] = sample{value, pod.Timestamp.Time, pod.Window.Duration}
		}
	}
	return out, nil
}

// notServed adds the requested resource to err if err means that the metrics API is not served.
// Typed clients do the same.
func notServed(err error, resource string) error {
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return fmt.Errorf("%w (get %s)", err, resource)
	}
	return err
}

// usedBy returns the sum of the usage of a pod's containers. If the last argument is not "", it
// returns only the usage of the container with this name. It returns false if there is no such
// container, or if a container has no value.
func usedBy(containers []resourcemetrics.ContainerMetrics, name v1.ResourceName, only string) (int64, bool) {
	sum, found := int64(0), false
	for _, c := range containers {
		if only != "" && c.Name != only {
			continue
		}
		q, ok := c.Usage[name]
		if !ok {
			return 0, false
		}
		sum, found = sum+quantity.Milli(q), true
	}
	return sum, found
}

// custom reads a custom metric with the API version v1beta2 or, if that is not served, v1beta1.
func (m *metrics) custom(ctx context.Context, selector, metricSelector labels.Selector,
	path ...string) (*custommetrics.MetricValueList, error) {
	var err error
	for _, version := range []string{"v1beta2", "v1beta1"} {
		var list custommetrics.MetricValueList
		err = m.get(ctx, &list, selector, metricSelector, append([]string{"custom.metrics.k8s.io", version}, path...)...)
		if err == nil && len(list.Items) == 0 {
			return nil, errors.New("no metrics returned from custom metrics API")
		}
		if err == nil {
			return &list, nil
		}
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
}

// pods returns the values of a custom metric of the selected pods.
func (m *metrics) pods(ctx context.Context, metric, namespace string, selector,
	metricSelector labels.Selector) (samples, error) {
	list, err := m.custom(ctx, selector, metricSelector, "namespaces", namespace, "pods", "*", metric)
	if err != nil {
		return nil, err
	}
	out := samples{}
	for _, i := range list.Items {
		window := defaultWindow
		if i.WindowSeconds != nil {
			window = time.Duration(*i.WindowSeconds) * time.Second
		}
		out[i.DescribedObject.Name] = sample{quantity.Milli(i.Value), i.Timestamp.Time, window}
	}
	return out, nil
}

// object returns the value of a custom metric of one object.
func (m *metrics) object(ctx context.Context, metric, namespace string,
	ref autoscalingv2.CrossVersionObjectReference, metricSelector labels.Selector) (int64, error) {
	gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	path := []string{"namespaces", namespace, "metrics", metric} // the path if the object is the namespace itself
	if gk != (schema.GroupKind{Kind: "Namespace"}) {
		mapping, err := m.mapper.RESTMapping(gk)
		if err != nil {
			return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
		}
		path = []string{"namespaces", namespace, mapping.Resource.GroupResource().String(), ref.Name, metric}
	}
	list, err := m.custom(ctx, nil, metricSelector, path...)
	if err != nil {
		return 0, err
	}
	return quantity.Milli(list.Items[0].Value), nil
}

// external returns the sum of the values of an external metric.
func (m *metrics) external(ctx context.Context, metric, namespace string, selector labels.Selector) (int64, error) {
	var list externalmetrics.ExternalMetricValueList
	if err := m.get(ctx, &list, selector, nil, "external.metrics.k8s.io", "v1beta1", "namespaces", namespace,
		metric); err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	sum := int64(0)
	for _, i := range list.Items {
		value := quantity.Milli(i.Value)
		if value > 0 && sum > math.MaxInt64-value {
			return math.MaxInt64, nil
		}
		sum += value
	}
	return sum, nil
}
