// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
)

// BenchmarkProxy measures the cost of a request from a client through the proxy to an endpoint over
// loopback, with small and large bodies and answers.
func BenchmarkProxy(b *testing.B) {
	for name, size := range map[string]int{"Small": 100, "Large": 4 << 20} {
		b.Run(name, func(b *testing.B) {
			payload := make([]byte, size)
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.Copy(io.Discard, r.Body)
					return
				}
				_, _ = w.Write(payload)
			}))
			defer endpoint.Close()
			p := NewProxy(Options{
				Limits: DefaultLimits(1 << 30), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
				Metrics: prometheus.NewRegistry(),
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, endpoint.Listener.Addr().String())
				},
			})
			i := &networkingv1.Ingress{}
			i.Spec.Rules = []networkingv1.IngressRule{
				{Host: "host", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
						Backend: backend("s")}}}}}}
			p.Use(Build([]*networkingv1.Ingress{i}, NewBackends(
				func(string, string) *v1.Service {
					return &v1.Service{Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}
				},
				func(string, string) []*discoveryv1.EndpointSlice {
					return []*discoveryv1.EndpointSlice{
						{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
							Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}}}}
				}), noCertificates))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			s := p.Server()
			go func() { _ = s.Serve(p.Listener(l)) }()
			defer s.Close()
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				b.Run(method, func(b *testing.B) {
					b.SetBytes(int64(size))
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						transport := &http.Transport{MaxIdleConnsPerHost: 8}
						defer transport.CloseIdleConnections()
						for pb.Next() {
							var body io.Reader
							if method == http.MethodPost {
								body = strings.NewReader(string(payload))
							}
							r, err := http.NewRequestWithContext(b.Context(), method, "http://"+l.Addr().String()+"/", body)
							if err != nil {
								b.Error(err)
								return
							}
							r.Host = "host"
							resp, err := transport.RoundTrip(r)
							if err != nil {
								b.Error(err)
								return
							}
							if n, err := io.Copy(io.Discard, resp.Body); err != nil ||
								resp.StatusCode != http.StatusOK || method == http.MethodGet && int(n) != size {
								b.Error(resp.Status, n, err)
							}
							_ = resp.Body.Close()
						}
					})
				})
			}
		})
	}
}
