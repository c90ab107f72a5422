// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
)

// front starts a proxy that forwards all requests for "host" to the endpoints.
func front(t *testing.T, endpoints ...string) (*Proxy, *httptest.Server) {
	t.Helper()
	p := NewProxy(Options{Limits: DefaultLimits(1 << 30), Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	p.Use(&Table{hosts: map[string]*host{
		"host": {prefixes: map[string]*Backend{"": {Name: "ns/s:80", Endpoints: endpoints}}}}})
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, s
}

// ask sends a request for the host "host". It returns the response's code, body and header.
func ask(t *testing.T, s *httptest.Server, r *http.Request) (int, string, http.Header) {
	t.Helper()
	r.Host = "host"
	r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(s.URL, "http://")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func request(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://host"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// echo starts an endpoint that answers a request with the request's text.
func echo(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s host=%s for=%s proto=%s forwarded=%q", r.Method, r.URL.RequestURI(), body,
			r.Host, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"), r.Header.Get("Forwarded"))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestForwards(t *testing.T) {
	_, s := front(t, echo(t))
	r := request(t, http.MethodPost, "/a%2Fb?q=1;2&x=%zz", "text")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	r.Header.Set("X-Forwarded-Proto", "https")
	r.Header.Set("Forwarded", "for=203.0.113.7")
	code, body, _ := ask(t, s, r)
	if want :=
		`POST /a%2Fb?q=1;2&x=%zz text host=host for=127.0.0.1 proto=http forwarded=""`; code != http.StatusOK ||
		body != want {
		t.Errorf("%d %s, want %s", code, body, want)
	}
}

// TestAnotherEndpoint checks that a request that could not be sent is sent to another endpoint,
// with its body.
func TestAnotherEndpoint(t *testing.T) {
	const closed = "127.0.0.1:1" // no process listens on port 1, and no other test can get it
	_, s := front(t, closed, closed, echo(t))
	for range 3 {
		if code, body, _ := ask(t, s, request(t, http.MethodPut, "/", "text")); code != http.StatusOK ||
			!strings.Contains(body, " text ") {
			t.Fatalf("%d %s", code, body)
		}
	}
	_, s = front(t, closed)
	if code, _, _ := ask(t, s, request(t, http.MethodGet, "/", "")); code != http.StatusBadGateway {
		t.Errorf("no endpoint listens: %d", code)
	}
}

// TestNotTwice checks that a request that an endpoint may have received is not repeated.
func TestNotTwice(t *testing.T) {
	var asked atomic.Int32
	broken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer broken.Close()
	at := broken.Listener.Addr().String()
	_, s := front(t, at, at)
	code, _, _ := ask(t, s, request(t, http.MethodPost, "/", "text"))
	if n := asked.Load(); code != http.StatusBadGateway || n != 1 {
		t.Errorf("%d after %d requests", code, n)
	}
}

func TestRefused(t *testing.T) {
	p, s := front(t, echo(t))
	for path, want := range map[string]int{"/a/../b": 400, "/a/%2e%2e/b": 400, "/./b": 400, "/a/..": 400,
		"/a..b/...": 200} {
		if code, body, _ := ask(t, s, request(t, http.MethodGet, path, "")); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	p.Use(Build([]*networkingv1.Ingress{ing(t, 0, "host", "Prefix / to s")}, noBackends(), noCertificates))
	if code, _, _ := ask(t, s, request(t, http.MethodGet, "/", "")); code != http.StatusServiceUnavailable {
		t.Errorf("no endpoints: %d", code)
	}
	p.Use(Build(nil, noBackends(), noCertificates))
	if code, _, _ := ask(t, s, request(t, http.MethodGet, "/", "")); code != http.StatusNotFound {
		t.Errorf("no Ingress: %d", code)
	}
}

func TestRedirectsToHTTPS(t *testing.T) {
	p, s := front(t, echo(t))
	secure := ing(t, 0, "host", "Prefix / to s")
	secure.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"host"}, SecretName: "tls"}}
	p.Use(Build([]*networkingv1.Ingress{secure}, noBackends(), func(string, string) *tls.Certificate {
		return &tls.Certificate{}
	}))
	code, _, header := ask(t, s, request(t, http.MethodGet, "/a?b=c", ""))
	if want := "https://host/a?b=c"; code != http.StatusPermanentRedirect || header.Get("Location") != want {
		t.Errorf("%d to %s, want %s", code, header.Get("Location"), want)
	}
	if _, err := p.Certificate(&tls.ClientHelloInfo{ServerName: "other"}); err == nil {
		t.Error("certificate for a host without one")
	}
}

// TestUpgrade checks that an upgraded connection forwards data in both directions.
func TestUpgrade(t *testing.T) {
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(rw, "heard %s", line)
		rw.Flush()
	}))
	defer b.Close()
	_, s := front(t, b.Listener.Addr().String())
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: host\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "talk" {
		t.Fatalf("%v %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "heard hello\n" {
		t.Errorf("%q %v", line, err)
	}
}

func TestHTTP2Backend(t *testing.T) {
	b := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Start()
	defer b.Close()
	p, s := front(t)
	p.Use(&Table{hosts: map[string]*host{
		"host": {prefixes: map[string]*Backend{"": {HTTP2: true, Endpoints: []string{b.Listener.Addr().String()}}}}}})
	if code, body, _ := ask(t, s, request(t, http.MethodGet, "/", "")); code != http.StatusOK || body != "HTTP/2.0" {
		t.Errorf("%d %s", code, body)
	}
	svc := &v1.Service{Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80, AppProtocol: ptr.To(h2c)}}}}
	var made Backend
	if made.fill(svc, networkingv1.ServiceBackendPort{Number: 80}, nil); !made.HTTP2 {
		t.Error("appProtocol is ignored")
	}
}
