// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/api/clock"
)

const (
	dialTimeout         = 2 * time.Second
	idleConnections     = 64 // maximum number of idle connections to each endpoint
	idleTimeout         = 60 * time.Second
	attempts            = 3        // maximum number of endpoints to try if connecting fails
	copyBytes           = 32 << 10 // size of a buffer for copying responses, in bytes
	endpointHeaderBytes = 64 << 10 // maximum size of a response's header, in bytes
	// endpointWindow is the HTTP/2 window: how many bytes an endpoint may send before the proxy has
	// read them.
	endpointWindow = 128 << 10
)

// Proxy forwards requests according to its current routing table.
type Proxy struct {
	table   atomic.Pointer[Table]
	reverse *httputil.ReverseProxy
	metrics proxyMetrics
	clock   clock.Clock
	log     *slog.Logger

	limits      Limits
	connections *shares[netip.Prefix]
	requests    *shares[netip.Prefix]
	namespaces  *shares[string]
}

// backendKey is the context key with which a request's backend is stored.
type backendKey struct{}

// Options configure a Proxy.
type Options struct {
	Limits  Limits
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Dial connects to an endpoint. If it is nil, the proxy uses a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewProxy returns a proxy with an empty routing table.
func NewProxy(o Options) *Proxy {
	l := o.Limits
	p := &Proxy{
		metrics: newProxyMetrics(o.Metrics), clock: o.Clock, log: o.Log, limits: l,
		connections: newShares[netip.Prefix](l.Connections, l.ClientConnections),
		requests:    newShares[netip.Prefix](l.Requests, l.ClientRequests),
		namespaces:  newShares[string](l.Requests, l.NamespaceRequests),
	}
	p.table.Store(Build(nil, NewBackends(nil, nil), nil))
	p.reverse = &httputil.ReverseProxy{
		Rewrite:      rewrite,
		Transport:    newEndpoints(o.Dial, l.Answer),
		BufferPool:   &buffers{},
		ErrorLog:     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ErrorHandler: p.failed,
	}
	return p
}

// buffers is a pool of buffers for copying responses.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[copyBytes]byte); ok {
		return buf[:]
	}
	return make([]byte, copyBytes)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buf []byte) { b.pool.Put((*[copyBytes]byte)(buf)) }

// Use makes t the routing table for all further requests.
func (p *Proxy) Use(t *Table) { p.table.Store(t) }

// Table returns the current routing table.
func (p *Proxy) Table() *Table { return p.table.Load() }

// ServeHTTP implements http.Handler. It forwards a request if the limits allow that.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	e := newExchange(w, r, p, cancel)
	defer p.end(e, r)
	from := client(r.RemoteAddr)
	ok, full := p.requests.take(from)
	switch {
	case full:
		p.refuse(e, "requests", http.StatusServiceUnavailable, "The ingress is at its limit of concurrent requests.")
	case !ok:
		p.refuse(e, "client_requests", http.StatusTooManyRequests, "This client is at its limit of concurrent requests.")
	default:
		defer p.requests.give(from)
		p.serve(e, r.WithContext(ctx))
	}
}

// end must be called when a request has ended. It counts the request for the limits of its
// connection.
func (p *Proxy) end(e *exchange, r *http.Request) {
	e.end()
	p.metrics.requests.WithLabelValues(class(e.code)).Inc()
	// A cancellation after the response has begun does not count, because clients end event streams
	// and gRPC streams in this way.
	cancelled := r.Context().Err() != nil && e.code < http.StatusOK
	if e.http2 && e.conn != nil && e.conn.ended(cancelled) {
		p.metrics.refused("cancelled_requests")
	}
}

// refuse rejects a request because of a limit.
func (p *Proxy) refuse(e *exchange, limit string, code int, text string) {
	p.metrics.refused(limit)
	if !e.http2 {
		e.Header().Set("Connection", "close")
	}
	http.Error(e, text, code)
}

// serve forwards a request to the backend for its host and path. A request over plain HTTP is
// redirected to HTTPS if the host has a certificate. A request over TLS is served only if the
// connection uses the certificate of the request's host.
func (p *Proxy) serve(e *exchange, r *http.Request) {
	if !validHost(r.Host) {
		http.Error(e, "The host is neither a name nor an address.", http.StatusBadRequest)
		return
	}
	if invalidPath(r.URL.Path) {
		http.Error(e, "The path must be absolute, and must not have \".\" or \"..\" as an element.", http.StatusBadRequest)
		return
	}
	t := p.table.Load()
	b := t.Route(r.Host, r.URL.Path)
	switch other := plain(r.URL.Path); {
	case r.TLS != nil && t.Certificate(r.Host) != t.Certificate(r.TLS.ServerName):
		http.Error(e, "This connection is for another host.", http.StatusMisdirectedRequest)
	case other != r.URL.Path && t.Route(r.Host, other) != b:
		http.Error(e, "The path can be read as that of another rule.", http.StatusBadRequest)
	case b == nil:
		http.Error(e, "No Ingress has this host and path.", http.StatusNotFound)
	case r.TLS == nil && t.Certificate(r.Host) != nil:
		http.Redirect(e, r, "https://"+bare(r.Host)+r.URL.RequestURI(), http.StatusPermanentRedirect)
	case len(b.Endpoints) == 0:
		http.Error(e, "No endpoint of the Service is ready.", http.StatusServiceUnavailable)
	default:
		p.forward(e, r, b)
	}
}

// forward forwards a request to a backend.
func (p *Proxy) forward(e *exchange, r *http.Request, b *Backend) {
	if ok, _ := p.namespaces.take(b.Namespace); !ok {
		p.refuse(e, "namespace_requests", http.StatusServiceUnavailable,
			"This namespace is at its limit of concurrent requests.")
		return
	}
	defer p.namespaces.give(b.Namespace)
	// A gRPC client may wait for a response before it sends more.
	if e.http2 && b.HTTP2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		e.markStreaming()
	}
	p.reverse.ServeHTTP(e, r.WithContext(context.WithValue(r.Context(), backendKey{}, b)))
}

// rewrite sets the headers that describe the client, and removes the values that the client has
// sent in them.
func rewrite(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if name == "" || claims(name) {
			delete(r.Out.Header, name)
		}
	}
	r.Out.Header.Del("HTTP2-Settings")
	if upgrade(r.In.Header) == "" {
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
	r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host // the transport ignores this host and chooses the endpoint
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.SetXForwarded()
}

// failed writes an error response after forwarding has failed.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := w.(*exchange); ok && e.gaveUp() {
		p.refuse(e, "slow_body", http.StatusRequestTimeout, "The body of the request did not arrive in time.")
		return
	}
	silent := errors.Is(context.Cause(r.Context()), errSilent)
	if r.Context().Err() != nil && !silent {
		return // the client has disconnected
	}
	p.metrics.failures.Inc()
	code := http.StatusBadGateway
	if timeout := net.Error(nil); silent || errors.As(err, &timeout) && timeout.Timeout() {
		code = http.StatusGatewayTimeout
	}
	http.Error(w, "The Service does not answer.", code)
}

// endpointsTransport sends a request to an endpoint of the request's backend.
type endpointsTransport struct{ plain, http2 *http.Transport }

func newEndpoints(dial func(ctx context.Context, network, address string) (net.Conn, error),
	answer time.Duration) *endpointsTransport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	transport := func(http2 bool) *http.Transport {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		return &http.Transport{
			DialContext: dial, Protocols: protocols, DisableCompression: true,
			MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTimeout, ResponseHeaderTimeout: answer,
			MaxResponseHeaderBytes: endpointHeaderBytes, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: endpointWindow},
		}
	}
	return &endpointsTransport{transport(false), transport(true)}
}

// RoundTrip tries another endpoint if it cannot connect to one, because nothing was sent then. It
// never repeats a request that may have reached an endpoint.
func (t *endpointsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b, _ := r.Context().Value(backendKey{}).(*Backend)
	transport := t.plain
	if b.HTTP2 {
		transport = t.http2
	}
	out := r.Clone(r.Context())
	if r.Body != nil {
		out.Body = io.NopCloser(r.Body) // a failed attempt must not close the body; the caller closes it
	}
	for i := 1; ; i++ {
		out.URL.Host = b.next()
		resp, err := transport.RoundTrip(out)
		if err == nil {
			return resp, nil
		}
		dial := (*net.OpError)(nil)
		if i == min(attempts, len(b.Endpoints)) || r.Context().Err() != nil || !errors.As(err, &dial) || dial.Op != "dial" {
			return nil, fmt.Errorf("endpoint %s of %s: %w", out.URL.Host, b.Name, err)
		}
	}
}

// Certificate returns the certificate for a TLS handshake. It rejects hosts without a certificate,
// so that no client gets another host's certificate.
func (p *Proxy) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := p.table.Load().Certificate(hello.ServerName); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no certificate for %q", hello.ServerName)
}
