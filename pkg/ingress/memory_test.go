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
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/api/clock"
)

// TestMemory measures the memory of connections and requests, on which the limits are based. The
// result includes the sides of the client and the endpoint, because they run in the same process.
func TestMemory(t *testing.T) {
	const n = 100
	release, arrived := make(chan struct{}), make(chan struct{}, n)
	endpoint := httptest.NewTLSServer(nil) // provides only its certificate
	certificate := endpoint.TLS.Certificates[0]
	endpoint.Close()
	endpoint = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- struct{}{}
			<-release
		}
	}))
	defer endpoint.Close()
	l := DefaultLimits(1 << 30)
	l.ClientConnections, l.ClientRequests = n, n
	p := NewProxy(Options{Limits: l, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	p.Use(&Table{
		hosts: map[string]*host{
			"host": {prefixes: map[string]*Backend{"": {Endpoints: []string{endpoint.Listener.Addr().String()}}}}},
		certificates: map[string]map[string]*tls.Certificate{"": {"host": &certificate}},
	})
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := p.Server()
	go func() { _ = s.ServeTLS(p.Listener(at), "", "") }()
	defer s.Close()
	defer close(release)
	var conns []net.Conn
	header := ""
	for i := range 100 { // the headers are well below the limit
		header += fmt.Sprintf("X-Header-%d: some text, as headers have\r\n", i)
	}
	before := held()
	for range n {
		conn, err := tls.Dial("tcp", at.Addr().String(),
			&tls.Config{ServerName: "host", InsecureSkipVerify: true}) //nolint:gosec // the test's own certificate
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: host\r\n"+header+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		conns = append(conns, conn)
	}
	idle := held()
	for _, conn := range conns {
		if _, err := io.WriteString(conn, "GET /wait HTTP/1.1\r\nHost: host\r\n"+header+"\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		<-arrived
	}
	busy := held()
	for what, tc := range map[string]struct{ has, max int64 }{
		"connection": {(idle - before) / n, connectionMemory}, "request": {(busy - idle) / n, requestMemory},
	} {
		t.Logf("a %s holds %d KiB", what, tc.has>>10)
		if tc.has > tc.max {
			t.Errorf("a %s holds %d bytes, more than %d", what, tc.has, tc.max)
		}
	}
}

func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
