// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	helper "k8s.io/component-helpers/resource"
)

// PodResources returns the collector of the metrics at /metrics/resources: the requests and limits
// of all pods that have not terminated.
func (s *Scheduler) PodResources() prometheus.Collector {
	labels := []string{"namespace", "pod", "node", "scheduler", "priority", "resource", "unit"}
	return podResources{
		pods: s.sources.pods.All,
		requests: prometheus.NewDesc("kube_pod_resource_request",
			"[STABLE] Resources requested by workloads on the cluster, broken down by pod. This shows the resource usage the "+
				"scheduler and kubelet expect per pod for resources along with the unit for the resource if any.", labels, nil),
		limits: prometheus.NewDesc("kube_pod_resource_limit",
			"[STABLE] Resources limit for workloads on the cluster, broken down by pod. This shows the resource usage the "+
				"scheduler and kubelet expect per pod for resources along with the unit for the resource if any.", labels, nil),
	}
}

type podResources struct {
	pods             func() map[types.NamespacedName]*v1.Pod
	requests, limits *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c podResources) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.requests
	ch <- c.limits
}

// Collect implements prometheus.Collector.
func (c podResources) Collect(ch chan<- prometheus.Metric) {
	var options helper.PodResourcesOptions
	for _, p := range c.pods() {
		c.collect(ch, c.requests, p, helper.PodRequests(p, options))
		c.collect(ch, c.limits, p, helper.PodLimits(p, options))
	}
}

func (podResources) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc, p *v1.Pod, amounts v1.ResourceList) {
	priority := ""
	if p.Spec.Priority != nil {
		priority = strconv.Itoa(int(*p.Spec.Priority))
	}
	for name, amount := range amounts {
		if !amount.IsZero() {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, amount.AsApproximateFloat64(),
				p.Namespace, p.Name, p.Spec.NodeName, p.Spec.SchedulerName, priority, string(name), unitOf(name))
		}
	}
}

// unitOf returns the unit of a resource for the metrics' label "unit", or "" if the resource has no
// unit.
func unitOf(name v1.ResourceName) string {
	switch {
	case name == v1.ResourceCPU:
		return "cores"
	case name == v1.ResourceMemory, name == v1.ResourceStorage, name == v1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return "bytes"
	case strings.HasPrefix(string(name), v1.ResourceAttachableVolumesPrefix):
		return "integer"
	}
	return ""
}
