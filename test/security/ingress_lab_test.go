// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/ingress"
)

// patience is how long a test waits for an expected response.
const patience = 30 * time.Second

// testIngress is an ingress proxy that serves HTTP and HTTPS on real listeners. HTTP handlers of
// the test are its endpoints.
type testIngress struct {
	proxy       *ingress.Proxy
	http, https string // addresses of the two listeners
	endpoints   map[string]string
	backends    ingress.Backends
	certs       map[string]*tls.Certificate // certificates by namespace/secret
}

// newTestIngress starts an ingress proxy. endpoints has handlers by the namespace/name of their
// Service.
func newTestIngress(t *testing.T, limits ingress.Limits, endpoints map[string]http.Handler) *testIngress {
	t.Helper()
	d := &testIngress{endpoints: map[string]string{}, certs: map[string]*tls.Certificate{}}
	for service, handler := range endpoints {
		s := httptest.NewServer(handler)
		t.Cleanup(s.CloseClientConnections)
		t.Cleanup(s.Close)
		d.endpoints[service] = s.Listener.Addr().String()
	}
	d.open(t, limits)
	return d
}

// open starts the listeners of the ingress proxy.
func (d *testIngress) open(t *testing.T, limits ingress.Limits) {
	t.Helper()
	// Maps the address of each endpoint, which does not exist, to the address of the test's
	// listener.
	addresses := map[string]string{}
	d.backends = ingress.NewBackends(
		func(_, name string) *v1.Service {
			return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}
		},
		func(namespace, name string) []*discoveryv1.EndpointSlice {
			at, ok := d.endpoints[namespace+"/"+name]
			if !ok {
				return nil
			}
			ip := fmt.Sprintf("192.0.2.%d", len(addresses)+1)
			addresses[ip+":80"] = at
			return []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}}},
				Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}}}}
		})
	d.proxy = ingress.NewProxy(ingress.Options{
		Limits: limits, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addresses[address])
		},
	})
	serve := func(run func(*http.Server, net.Listener) error) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		s := d.proxy.Server()
		done := make(chan error, 1)
		go func() { done <- run(s, d.proxy.Listener(l)) }()
		t.Cleanup(func() {
			_ = s.Close()
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
	d.http = serve((*http.Server).Serve)
	d.https = serve(func(s *http.Server, l net.Listener) error { return s.ServeTLS(l, "", "") })
}

// use makes the proxy serve the given Ingresses instead of earlier ones.
func (d *testIngress) use(ingresses ...*networkingv1.Ingress) {
	d.proxy.Use(ingress.Build(ingresses, d.backends, func(namespace, secret string) *tls.Certificate {
		return d.certs[namespace+"/"+secret]
	}))
}

// rules returns an Ingress for a host that was created age seconds ago. Each of paths has the form
// "/path service".
func rules(namespace, name string, age int, host string, paths ...string) *networkingv1.Ingress {
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		CreationTimestamp: metav1.Unix(int64(1000-age), 0)}}
	ing.Spec.IngressClassName = ptr.To("keelson")
	http := &networkingv1.HTTPIngressRuleValue{}
	for _, p := range paths {
		path, service, _ := strings.Cut(p, " ")
		http.Paths = append(http.Paths,
			networkingv1.HTTPIngressPath{Path: path, PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: *toService(service)})
	}
	ing.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}}}
	return ing
}

func toService(name string) *networkingv1.IngressBackend {
	return &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name,
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
}

// secured adds a certificate for the host to an Ingress, and returns the Ingress.
func (d *testIngress) secured(t *testing.T, ing *networkingv1.Ingress, host string) *networkingv1.Ingress {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	check(t, err)
	d.certs[ing.Namespace+"/"+ing.Name] = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	ing.Spec.TLS = append(ing.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{host}, SecretName: ing.Name})
	return ing
}

// dial connects to a listener of the proxy and sets a read deadline.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// say sends text, and returns the status and body of the response. The status is 0 if the proxy
// closes the connection instead.
func say(t *testing.T, conn net.Conn, text string) (int, string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	check(t, err)
	return hear(t, bufio.NewReader(conn))
}

func hear(t *testing.T, in *bufio.Reader) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("the ingress neither answers nor closes the connection")
		}
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(body)
}

// named returns a handler that responds with its name and the requested path.
func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", name, r.RequestURI) })
}
