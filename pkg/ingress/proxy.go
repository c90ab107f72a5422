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
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	dialTimeout     = 2 * time.Second
	responseTimeout = 60 * time.Second // until an endpoint begins to answer
	idleConnections = 64               // to one endpoint
	idleTimeout     = 60 * time.Second
	attempts        = 3 // of endpoints that cannot be connected to
)

// Proxy answers requests by the table that it has at the time.
type Proxy struct {
	table   atomic.Pointer[Table]
	reverse *httputil.ReverseProxy
	metrics proxyMetrics
}

// backendKey finds the backend of a request in its context.
type backendKey struct{}

// NewProxy returns a proxy with an empty table.
func NewProxy(log *slog.Logger, metrics prometheus.Registerer) *Proxy {
	p := &Proxy{metrics: newProxyMetrics(metrics)}
	p.table.Store(Build(nil, NewBackends(nil, nil), nil))
	p.reverse = &httputil.ReverseProxy{
		Rewrite:      rewrite,
		Transport:    newEndpoints(),
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: p.failed,
	}
	return p
}

// Use has requests from now on go by t.
func (p *Proxy) Use(t *Table) { p.table.Store(t) }

// Table is the table in use.
func (p *Proxy) Table() *Table { return p.table.Load() }

// ServeHTTP sends one request on. Over plain HTTP a host that has a certificate
// is redirected to HTTPS.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &recorder{ResponseWriter: w}
	defer func() { p.metrics.requests.WithLabelValues(class(out.code)).Inc() }()
	if ambiguous(r.URL.Path) {
		http.Error(out, "The path must not have \".\" or \"..\" as an element.", http.StatusBadRequest)
		return
	}
	t := p.table.Load()
	b := t.Route(r.Host, r.URL.Path)
	switch {
	case b == nil:
		http.Error(out, "No Ingress has this host and path.", http.StatusNotFound)
	case r.TLS == nil && t.Certificate(r.Host) != nil:
		http.Redirect(out, r, "https://"+bare(r.Host)+r.URL.RequestURI(), http.StatusPermanentRedirect)
	case len(b.Endpoints) == 0:
		http.Error(out, "No endpoint of the Service is ready.", http.StatusServiceUnavailable)
	default:
		p.reverse.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), backendKey{}, b)))
	}
}

// ambiguous tells whether endpoints may read another path than was routed.
func ambiguous(path string) bool {
	for element := range strings.SplitSeq(path, "/") {
		if element == "." || element == ".." {
			return true
		}
	}
	return !strings.HasPrefix(path, "/") && path != "*"
}

// rewrite says who asked: what the client says of that itself is not believed.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host // the endpoint is chosen by the transport
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	r.SetXForwarded()
}

// failed answers for an endpoint that does not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody waits
	}
	p.metrics.failures.Inc()
	code := http.StatusBadGateway
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		code = http.StatusGatewayTimeout
	}
	http.Error(w, "The Service does not answer.", code)
}

// endpointsTransport sends a request to an endpoint of its backend.
type endpointsTransport struct{ plain, http2 *http.Transport }

func newEndpoints() *endpointsTransport {
	transport := func(http2 bool) *http.Transport {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		return &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, Protocols: protocols, DisableCompression: true,
			MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTimeout, ResponseHeaderTimeout: responseTimeout,
		}
	}
	return &endpointsTransport{transport(false), transport(true)}
}

// RoundTrip tries further endpoints where one cannot be connected to: nothing
// was sent then. What may have been sent is not sent twice.
func (t *endpointsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b, _ := r.Context().Value(backendKey{}).(*Backend)
	transport := t.plain
	if b.HTTP2 {
		transport = t.http2
	}
	out := r.Clone(r.Context())
	if r.Body != nil {
		out.Body = io.NopCloser(r.Body) // an attempt that fails would close it; the caller does at the end
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

// Certificate chooses the certificate for a TLS connection. A host without one
// is refused: no certificate of another's is shown.
func (p *Proxy) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := p.table.Load().Certificate(hello.ServerName); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no certificate for %q", hello.ServerName)
}
