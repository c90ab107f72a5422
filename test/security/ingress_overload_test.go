// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/keelson/pkg/ingress"
)

// short returns the default limits with timeouts that are short enough for tests.
func short() ingress.Limits {
	l := defaults()
	l.Header, l.Idle, l.Stall, l.Silence, l.Answer = time.Second, time.Second, 500*time.Millisecond,
		5*time.Second, time.Second
	return l
}

// endless returns a handler that writes a response without end, and sends to ended when it is
// stopped.
func endless(ended chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer func() {
			select {
			case ended <- struct{}{}:
			default: // a value is already in the channel
			}
		}()
		for chunk := make([]byte, 1<<16); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
}

// hangsUp waits until the proxy closes a connection. It ignores a response before that.
func hangsUp(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("the ingress does not close the connection")
		}
	}
}

// framed opens an HTTP/2 connection to the proxy, for reading and writing single frames.
func framed(t *testing.T, d *testIngress, settings ...http2.Setting) (net.Conn, *http2.Framer) {
	t.Helper()
	conn := tls.Client(dial(t, d.https), &tls.Config{ServerName: "shop.example.org", InsecureSkipVerify: true,
		NextProtos: []string{"h2"}}) //nolint:gosec // the test's own certificate
	_, err := io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	f := http2.NewFramer(conn, conn)
	check(t, f.WriteSettings(settings...))
	return conn, f
}

func block(t *testing.T, method, path string) []byte {
	t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: method},
		{Name: ":scheme", Value: "https"}, {Name: ":path", Value: path}, {Name: ":authority", Value: "shop.example.org"}} {
		check(t, e.WriteField(field))
	}
	return b.Bytes()
}

// shopIngress starts an ingress proxy that serves shop.example.org with TLS, and plain.example.org
// without TLS.
func shopIngress(t *testing.T, limits ingress.Limits, handler http.Handler) *testIngress {
	t.Helper()
	d := newTestIngress(t, limits, map[string]http.Handler{"shop/web": handler, "bank/web": named("bank")})
	d.use(d.secured(t, rules("shop", "shop", 1, "shop.example.org", "/ web"), "shop.example.org"),
		rules("shop", "plain", 1, "plain.example.org", "/ web"), rules("bank", "bank", 1, "bank.example.org", "/ web"))
	return d
}

// TestIngressSlowClients checks that the proxy disconnects clients that begin a request, or the
// reading of a response, and do not continue.
func TestIngressSlowClients(t *testing.T) {
	ended := map[string]chan struct{}{}
	mux := http.NewServeMux()
	for _, attack := range []string{"reader", "window", "reader2", "reset"} {
		ended[attack] = make(chan struct{}, 1)
		mux.Handle("/endless/"+attack, endless(ended[attack]))
	}
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "read")
	})
	d := shopIngress(t, short(), mux)
	over := func(t *testing.T, attack string) {
		t.Helper()
		select {
		case <-ended[attack]:
		case <-time.After(patience):
			t.Error("the endpoint is still busy")
		}
	}
	for name, attack := range map[string]func(t *testing.T){
		"Body": func(t *testing.T) {
			conn := dial(t, d.http)
			if code, body := say(t, conn,
				"POST /read HTTP/1.1\r\nHost: plain.example.org\r\n"+
					"Content-Length: 100\r\n\r\nx"); code != http.StatusRequestTimeout {
				t.Errorf("%d %s", code, body)
			}
			hangsUp(t, conn)
		},
		"ChunkedBody": func(t *testing.T) {
			conn := dial(t, d.http)
			if code, body := say(t, conn,
				"POST /read HTTP/1.1\r\nHost: plain.example.org\r\n"+
					"Transfer-Encoding: chunked\r\n\r\n5\r\nx"); code != http.StatusRequestTimeout {
				t.Errorf("%d %s", code, body)
			}
			hangsUp(t, conn)
		},
		"BodyOfNoHost": func(t *testing.T) {
			conn := dial(t, d.http)
			_, err := io.WriteString(conn, "POST /read HTTP/1.1\r\nHost: nobody.example.org\r\nContent-Length: 100\r\n\r\nx")
			check(t, err)
			hangsUp(t, conn)
		},
		"Reader": func(t *testing.T) {
			_, err := io.WriteString(dial(t, d.http), "GET /endless/reader HTTP/1.1\r\nHost: plain.example.org\r\n\r\n")
			check(t, err)
			over(t, "reader")
		},
		"Header": func(t *testing.T) {
			conn := dial(t, d.http)
			_, err := io.WriteString(conn, "GET /read HTTP/1.1\r\nHost: plain")
			check(t, err)
			hangsUp(t, conn)
		},
		"Handshake": func(t *testing.T) { hangsUp(t, dial(t, d.https)) },
		"HTTP2Body": func(t *testing.T) {
			_, f := framed(t, d)
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: block(t, "POST", "/read"), EndHeaders: true}))
			awaitAnswer(t, f)
		},
		"HTTP2Window": func(t *testing.T) {
			_, f := framed(t, d, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: block(t, "GET", "/endless/window"), EndHeaders: true, EndStream: true}))
			over(t, "window")
		},
		"HTTP2Reader": func(t *testing.T) {
			_, f := framed(t, d, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
			check(t, f.WriteWindowUpdate(0, 1<<30))
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: block(t, "GET", "/endless/reader2"), EndHeaders: true, EndStream: true}))
			over(t, "reader2")
		},
		"HTTP2Header": func(t *testing.T) {
			conn, f := framed(t, d)
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, "GET", "/read")}))
			hangsUp(t, conn)
		},
		"HTTP2Continuation": func(t *testing.T) {
			conn, f := framed(t, d)
			check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, "GET", "/read")}))
			var field bytes.Buffer
			check(t, hpack.NewEncoder(&field).WriteField(hpack.HeaderField{Name: "x",
				Value: strings.Repeat("x", 10<<10), Sensitive: true}))
			for range 1000 {
				if f.WriteContinuation(1, false, field.Bytes()) != nil {
					return
				}
			}
			hangsUp(t, conn)
		},
		"HTTP2RapidReset": func(t *testing.T) {
			conn, f := framed(t, d)
			for stream := uint32(1); stream < 20000; stream += 2 {
				if f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream,
					BlockFragment: block(t, "GET", "/endless/reset"), EndHeaders: true,
					EndStream: true}) != nil || f.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
					return
				}
			}
			check(t, f.WritePing(false, [8]byte{1}))
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if _, ok := frame.(*http2.PingFrame); ok {
					t.Error("the connection is still open")
					_ = conn.Close()
					return
				}
			}
		},
	} {
		t.Run(name, attack)
	}
}

// awaitAnswer reads frames until the first stream has ended.
func awaitAnswer(t *testing.T, f *http2.Framer) {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the ingress does not end the stream")
			}
			return
		}
		if h := frame.Header(); h.StreamID == 1 &&
			(h.Type == http2.FrameRSTStream || h.Flags.Has(http2.FlagDataEndStream) && h.Type != http2.FrameSettings) {
			return
		}
	}
}

// TestIngressConnectionsOfOneClient checks that one client cannot use all connections that the
// proxy permits in total.
func TestIngressConnectionsOfOneClient(t *testing.T) {
	l := defaults()
	l.Connections, l.ClientConnections = 20, 5
	d := shopIngress(t, l, named("shop"))
	for range l.ClientConnections {
		if code, body := say(t, dial(t, d.http), "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"); code != http.StatusOK {
			t.Fatal(code, body)
		}
	}
	for _, address := range []string{d.http, d.https} {
		conn := dial(t, address)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n")
		if n, _ := conn.Read(make([]byte, 10)); n > 0 {
			t.Error("a client has more connections than its share")
		}
	}
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(),
		"tcp", d.http)
	check(t, err)
	defer other.Close()
	if code, body := say(t, other, "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"); code != http.StatusOK {
		t.Errorf("another client: %d %s", code, body)
	}
}

// TestIngressHangingEndpoints checks that requests to endpoints that do not respond cannot use all
// concurrent requests that the proxy permits, so that other namespaces can still be served.
func TestIngressHangingEndpoints(t *testing.T) {
	release := make(chan struct{})
	hanging := make(chan struct{}, 100)
	l := defaults()
	l.Requests, l.NamespaceRequests, l.ClientRequests = 8, 4, 6
	d := shopIngress(t, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		hanging <- struct{}{}
		<-release
	}))
	t.Cleanup(func() { close(release) })
	for range l.NamespaceRequests {
		_, err := io.WriteString(dial(t, d.http), "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n")
		check(t, err)
		<-hanging
	}
	if code, body := say(t, dial(t, d.http),
		"GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"); code != http.StatusServiceUnavailable {
		t.Errorf("one namespace has more requests than its share: %d %s", code, body)
	}
	if code, body := say(t, dial(t, d.http), "GET / HTTP/1.1\r\nHost: bank.example.org\r\n\r\n"); code != http.StatusOK {
		t.Errorf("another namespace: %d %s", code, body)
	}
}

// TestIngressRequestsOfOneClient checks that one client cannot use all concurrent requests that the
// proxy permits in total.
func TestIngressRequestsOfOneClient(t *testing.T) {
	release := make(chan struct{})
	hanging := make(chan struct{}, 100)
	l := defaults()
	l.ClientRequests = 3
	d := shopIngress(t, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		hanging <- struct{}{}
		<-release
	}))
	t.Cleanup(func() { close(release) })
	for range l.ClientRequests {
		_, err := io.WriteString(dial(t, d.http), "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n")
		check(t, err)
		<-hanging
	}
	if code, body := say(t, dial(t, d.http),
		"GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"); code != http.StatusTooManyRequests {
		t.Errorf("one client has more requests than its share: %d %s", code, body)
	}
}

// TestIngressHostileEndpoints checks that the proxy ends a request if the endpoint never responds
// or sends endless headers.
func TestIngressHostileEndpoints(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/header":
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		case "/never":
			<-r.Context().Done()
		}
	})
	d := shopIngress(t, short(), large)
	for path, want := range map[string]int{"/header": http.StatusBadGateway, "/never": http.StatusGatewayTimeout} {
		conn := dial(t, d.http)
		_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: plain.example.org\r\n\r\n")
		check(t, err)
		if code, _ := hear(t, bufio.NewReader(conn)); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}
