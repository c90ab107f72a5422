// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// metrics counts requests by version of the API, under the names of Kubernetes' metrics.
type metrics struct {
	total            *prometheus.CounterVec
	requests, failed map[string]*prometheus.CounterVec // counters by method; only for v1
}

func newMetrics(reg prometheus.Registerer) metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_" + name, Help: "[ALPHA] " + help + " Broken down by server api version.",
		}, []string{"server_api_version"})
		reg.MustRegister(c)
		return c
	}
	m := metrics{
		total:    counter("requests_total", "Cumulative number of requests to the PodResource endpoint."),
		requests: map[string]*prometheus.CounterVec{}, failed: map[string]*prometheus.CounterVec{},
	}
	for method, name := range map[string]string{"List": "list", "Get": "get",
		"GetAllocatableResources": "get_allocatable"} {
		m.requests[method] = counter("requests_"+name, "Number of requests to the PodResource "+method+" endpoint.")
		m.failed[method] = counter("errors_"+name, "Number of requests to the PodResource "+method+
			" endpoint which returned error.")
	}
	return m
}

// count counts a call of a method. method is the full gRPC name, /SERVICE/METHOD.
func (m metrics) count(method string, err error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if service == v1alpha1.PodResourcesLister_ServiceDesc.ServiceName {
		m.total.WithLabelValues("v1alpha1").Inc()
		return
	}
	if service != api.PodResourcesLister_ServiceDesc.ServiceName {
		return
	}
	m.total.WithLabelValues("v1").Inc()
	m.requests[name].WithLabelValues("v1").Inc()
	if err != nil {
		m.failed[name].WithLabelValues("v1").Inc()
	}
}
