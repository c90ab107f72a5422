// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
)

// Metrics measures the calls to the runtime: their number, duration and failures.
type Metrics struct {
	clock         clock.PassiveClock
	timeout       time.Duration // timeout of calls whose context has no deadline
	total, failed *prometheus.CounterVec
	duration      *prometheus.HistogramVec
}

// NewMetrics creates and registers the metrics, with Kubernetes' names.
func NewMetrics(c clock.PassiveClock, r prometheus.Registerer) *Metrics {
	label := []string{"operation_type"}
	m := &Metrics{
		clock: c,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_total",
			Help: "[ALPHA] Cumulative number of runtime operations by operation type."}, label),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_runtime_operations_errors_total",
			Help: "[ALPHA] Cumulative number of runtime operation errors by operation type."}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_runtime_operations_duration_seconds",
			Help:    "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14)}, label),
	}
	r.MustRegister(m.total, m.failed, m.duration)
	return m
}

// measure measures a call. It is a gRPC interceptor. It also adds a timeout if the context has
// none, except to image pulls, which may take long.
func (m *Metrics) measure(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := operation(method)
	if _, bounded := ctx.Deadline(); !bounded && name != "pull_image" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.timeout)
		defer cancel()
	}
	begun := m.clock.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	m.total.WithLabelValues(name).Inc()
	m.duration.WithLabelValues(name).Observe(m.clock.Since(begun).Seconds())
	if err != nil {
		m.failed.WithLabelValues(name).Inc()
	}
	return err
}

// operation returns the name that Kubernetes' metrics use for a call. For example, the name of
// /runtime.v1.RuntimeService/RunPodSandbox is run_podsandbox.
func operation(method string) string {
	method = strings.Replace(method[strings.LastIndex(method, "/")+1:], "PodSandbox", "Podsandbox", 1)
	if method == "UpdateContainerResources" {
		return "update_container" // the name that Kubernetes uses
	}
	var out strings.Builder
	for i, c := range method {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				out.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		out.WriteRune(c)
	}
	return out.String()
}
