// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"keelson.dev/api/clock"
)

// metrics holds the metrics of operations on the claims of a pod, and of the calls to drivers.
type metrics struct {
	clock             clock.Clock
	operations, calls *prometheus.HistogramVec
}

func newMetrics(c clock.Clock) *metrics {
	// The last bucket ends at 40 s, close to the timeout of a call.
	buckets := prometheus.ExponentialBucketsRange(.1, 40, 15)
	return &metrics{
		clock: c,
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "dra_operations_duration_seconds",
			Buckets: buckets,
			Help: "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims " +
				"referenced by a pod when the pod starts or stops."},
			[]string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "dra_grpc_operations_duration_seconds",
			Buckets: buckets,
			Help:    "[ALPHA] Duration in seconds of the DRA gRPC operations"},
			[]string{"driver_name", "method_name", "grpc_status_code"}),
	}
}

// operation records the duration and the result of an operation that has ended.
func (m *metrics) operation(name string, begun time.Time, err *error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(*err != nil)).Observe(m.clock.Since(begun).Seconds())
}

// measure returns a gRPC interceptor that measures the calls to a driver.
func (m *metrics) measure(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		begun := m.clock.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		m.calls.WithLabelValues(driver, method, status.Code(err).String()).Observe(m.clock.Since(begun).Seconds())
		return err
	}
}

// anyDriver is the value of the driver label for the number of all prepared claims. The numbers of
// the drivers do not add up to it, because a claim may have devices of several drivers.
const anyDriver = "<any>"

// claimsInUse counts the prepared claims at each scrape. In this way, there are no series of
// drivers that have been removed.
type claimsInUse struct{ manager *Manager }

var inUse = prometheus.NewDesc("dra_resource_claims_in_use",
	"[ALPHA] The number of ResourceClaims that are currently in use on the node, by driver name "+
		"(driver_name label value) and across all drivers (special value <any> for driver_name).",
	[]string{"driver_name"}, nil)

// Describe implements prometheus.Collector.
func (*claimsInUse) Describe(ch chan<- *prometheus.Desc) { ch <- inUse }

// Collect implements prometheus.Collector. It counts the claims that all their drivers have
// prepared.
func (c *claimsInUse) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{anyDriver: 0}
	c.manager.mu.Lock()
	for _, claim := range c.manager.claims {
		if len(claim.Devices) < len(claim.Drivers) {
			continue // not all drivers have prepared this claim
		}
		counts[anyDriver]++
		for _, driver := range claim.Drivers {
			counts[driver]++
		}
	}
	c.manager.mu.Unlock()
	for driver, n := range counts {
		ch <- prometheus.MustNewConstMetric(inUse, prometheus.GaugeValue, float64(n), driver)
	}
}
