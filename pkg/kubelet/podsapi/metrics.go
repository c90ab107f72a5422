// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// metrics count requests by version of the API and status code, as in Kubernetes.
type metrics struct {
	total    *prometheus.CounterVec
	byMethod map[string]*prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_requests_" + name,
			Help: "[ALPHA] " + help + " Broken down by server api version and status code.",
		}, []string{"server_api_version", "status_code"})
		reg.MustRegister(c)
		return c
	}
	return metrics{
		total: counter("total", "Cumulative number of requests to the PodsAPI endpoint."),
		byMethod: map[string]*prometheus.CounterVec{
			api.Pods_ListPods_FullMethodName:  counter("list_total", "Number of requests to the PodsAPI List endpoint."),
			api.Pods_GetPod_FullMethodName:    counter("get_total", "Number of requests to the PodsAPI Get endpoint."),
			api.Pods_WatchPods_FullMethodName: counter("watch_total", "Number of requests to the PodsAPI Watch endpoint."),
		},
	}
}

// count counts a call. method is its full name, for example "/v1alpha1.Pods/ListPods".
func (m metrics) count(method string, err error) {
	c := m.byMethod[method]
	if c == nil {
		return
	}
	code := status.Code(err)
	if errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), ".")
	m.total.WithLabelValues(version, code.String()).Inc()
	c.WithLabelValues(version, code.String()).Inc()
}
