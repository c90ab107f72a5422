// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/proxy"
	"keelson.dev/keelson/pkg/proxy/kernel"
)

// cluster is an API server, a node, and the node's proxy.
type cluster struct {
	*node
	client kubernetes.Interface
	proxy  *proxy.Proxy
	server *testserver.Server
	spans  *tracetest.SpanRecorder // spans of the proxy that was started last
}

func newCluster(t *testing.T, change func(*proxy.Config)) *cluster {
	t.Helper()
	c := &cluster{node: newNode(t, newSpace(t))}
	c.serve()
	c.start(change)
	return c
}

// serve starts the API server.
func (c *cluster) serve() {
	c.t.Helper()
	c.server = testserver.Start(c.t, testserver.Options{Configure: func(c *config.Config) {
		c.ServiceClusterIPRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	}})
	c.client = c.server.Client
	c.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
	})
}

func (c *cluster) config() proxy.Config {
	return proxy.Config{
		Node: "n1", MasqueradeBit: 14, Pods: kernel.ByRange,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd44::/16")},
		Audit:     time.Hour, HealthTimeout: time.Hour, NetNS: int(c.ns),
	}
}

// start starts the proxy. The returned function stops it. The tables stay, as after the process was
// killed.
func (c *cluster) start(change func(*proxy.Config)) (stop func()) {
	c.t.Helper()
	cfg := c.config()
	if change != nil {
		change(&cfg)
	}
	c.spans = tracetest.NewSpanRecorder()
	p, err := proxy.New(cfg, proxy.Deps{
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(c.spans)).Tracer("test"),
		Client: c.client, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		Metrics: prometheus.NewRegistry(), Started: func() {}, Event: func(types.NamespacedName, string, string) {},
	})
	c.must(err)
	c.proxy = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
	c.t.Cleanup(stop)
	c.eventually("proxy ready", p.Health().Synced)
	return stop
}

// eventually waits until ok returns true.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	eventually(c.t, what, ok)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	clk := clock.Real()
	for deadline := clk.Now().Add(patience); !ok(); clk.Sleep(10 * time.Millisecond) {
		if clk.Now().After(deadline) {
			t.Fatal("not seen: " + what)
		}
	}
}

// patience is the maximum time for which a test waits for an expected event.
const patience = 3 * time.Minute

func (c *cluster) create(objects ...metav1.Object) {
	c.t.Helper()
	ctx := context.Background()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Node:
			_, err = c.client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
		case *corev1.Service:
			_, err = c.client.CoreV1().Services("default").Create(ctx, o, metav1.CreateOptions{})
		case *discoveryv1.EndpointSlice:
			_, err = c.client.DiscoveryV1().EndpointSlices("default").Create(ctx, o, metav1.CreateOptions{})
		}
		c.must(err)
	}
}

// svc creates a Service with port 80 of a protocol, and an EndpointSlice with the pods' IPv4
// addresses.
func (c *cluster) svc(name string, protocol corev1.Protocol, change func(*corev1.ServiceSpec),
	pods ...endpoint) *corev1.Service {
	c.t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80, Protocol: protocol, TargetPort: intstr.FromInt32(targetPort)}}},
	}
	if change != nil {
		change(&s.Spec)
	}
	s, err := c.client.CoreV1().Services("default").Create(context.Background(), s, metav1.CreateOptions{})
	c.must(err)
	c.create(slice(name, protocol, discoveryv1.AddressTypeIPv4, pods...))
	return s
}

// endpoint is a pod, with its conditions as an endpoint in an EndpointSlice.
type endpoint struct {
	*pod
	node                  string
	terminating, notReady bool
}

func on(n string, p *pod) endpoint { return endpoint{pod: p, node: n} }

func slice(svc string, protocol corev1.Protocol, family discoveryv1.AddressType,
	pods ...endpoint) *discoveryv1.EndpointSlice {
	port, empty := int32(targetPort), ""
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: svc + "-" + strings.ToLower(string(family)),
			Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: family, Endpoints: []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{Name: &empty, Port: &port, Protocol: &protocol}},
	}
	for _, p := range pods {
		addr := p.v4.String()
		if family == discoveryv1.AddressTypeIPv6 {
			addr = p.v6.String()
		}
		ready, serving, node := !p.terminating && !p.notReady, !p.notReady, p.node
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addr}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &p.terminating},
		})
	}
	return s
}

// endpoints replaces the endpoints of a service by the given pods.
func (c *cluster) endpoints(svc string, protocol corev1.Protocol, pods ...endpoint) {
	c.t.Helper()
	s := slice(svc, protocol, discoveryv1.AddressTypeIPv4, pods...)
	_, err := c.client.DiscoveryV1().EndpointSlices("default").Update(context.Background(), s, metav1.UpdateOptions{})
	c.must(err)
}

func vip(s *corev1.Service) string { return s.Spec.ClusterIP + ":80" }

// reachable waits until a new connection gets an answer.
func (c *cluster) reachable(from *space, to string) {
	c.t.Helper()
	c.eventually(to+" answers", func() bool {
		// Each attempt uses a new connection with another source port. If a packet arrived before
		// the rules existed, connection tracking has an entry for its ports, and later packets
		// follow that entry.
		conn, err := from.dial("tcp", to, 300*time.Millisecond)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = ask(conn)
		return err == nil
	})
}
