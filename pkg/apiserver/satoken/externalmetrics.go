// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson.dev/api/clock"
)

// ExternalMetrics are metrics of the requests to an external signer. Those without labels are vectors,
// so that they are absent until they have a value.
type ExternalMetrics struct {
	lastFetch, keysChanged *prometheus.GaugeVec
	fetched, signed        *prometheus.CounterVec
	duration               *prometheus.HistogramVec
}

// NewExternalMetrics registers the metrics with r. If r is nil, they are not exported.
func NewExternalMetrics(r prometheus.Registerer) *ExternalMetrics {
	const prefix = "apiserver_externaljwt_"
	f := promauto.With(r)
	return &ExternalMetrics{
		lastFetch: f.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "fetch_keys_success_timestamp",
			Help: "[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys request"}, nil),
		keysChanged: f.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "fetch_keys_data_timestamp",
			Help: "[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned " +
				"by the external signer"}, nil),
		fetched: f.NewCounterVec(prometheus.CounterOpts{Name: prefix + "fetch_keys_request_total",
			Help: "[ALPHA] Total attempts at syncing supported JWKs"}, []string{"code"}),
		signed: f.NewCounterVec(prometheus.CounterOpts{Name: prefix + "sign_request_total",
			Help: "[ALPHA] Total attempts at signing JWT"}, []string{"code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "request_duration_seconds",
			Help:    "[ALPHA] Request duration and time for calls to external-jwt-signer",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}},
			[]string{"method", "code"}),
	}
}

// observer returns an interceptor that measures requests to the signer.
func (m *ExternalMetrics) observer(clk clock.Clock) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		start := clk.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		m.duration.WithLabelValues(method, code(err)).Observe(clk.Now().Sub(start).Seconds())
		return err
	}
}

// code returns the gRPC code of an error as in Kubernetes' metrics.
func code(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}

// seconds returns t in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
