// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	testingclock "k8s.io/utils/clock/testing"
)

// newTimedProxy starts a proxy with a fake clock. It forwards all requests for "host" to handler.
func newTimedProxy(t *testing.T, handler http.HandlerFunc) (*testingclock.FakeClock, string) {
	t.Helper()
	b := httptest.NewServer(handler)
	t.Cleanup(b.Close)
	clk := testingclock.NewFakeClock(time.Now())
	p := NewProxy(Options{Limits: DefaultLimits(1 << 30), Clock: clk, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry()})
	p.Use(&Table{hosts: map[string]*host{
		"host": {prefixes: map[string]*Backend{"": {Endpoints: []string{b.Listener.Addr().String()}}}}}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := p.Server()
	go func() { _ = s.Serve(p.Listener(l)) }()
	t.Cleanup(func() { _ = s.Close() })
	return clk, l.Addr().String()
}

// written waits until the proxy has completed the write whose data the client has read. After that,
// the only timer that runs is the silence timer of the only request.
func written(clk *testingclock.FakeClock) {
	for clk.Waiters() > 1 {
		runtime.Gosched()
	}
}

func open(t *testing.T, address, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// TestEventsLast checks that an event stream lasts until it has been silent for too long.
func TestEventsLast(t *testing.T) {
	next, ended := make(chan struct{}), make(chan struct{})
	clk, address := newTimedProxy(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case <-next:
				fmt.Fprint(w, "event\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	_, in := open(t, address, "GET / HTTP/1.1\r\nHost: host\r\n\r\n")
	next <- struct{}{}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(resp.Body)
	for range 5 {
		if line, err := events.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		written(clk)
		clk.Step(45 * time.Minute)
		next <- struct{}{}
	}
	if _, err := events.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	written(clk)
	clk.Step(61 * time.Minute)
	<-ended
	if _, err := events.ReadString('\n'); err == nil {
		t.Error("an event after the end")
	}
}

// TestUpgradedLasts checks that an upgraded connection lasts as long as either side sends data.
func TestUpgradedLasts(t *testing.T) {
	ended := make(chan struct{})
	clk, address := newTimedProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	conn, in := open(t, address, "GET / HTTP/1.1\r\nHost: host\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	for range 5 {
		fmt.Fprint(conn, "hello\n")
		if line, err := in.ReadString('\n'); line != "hello\n" {
			t.Fatal(line, err)
		}
		written(clk)
		clk.Step(45 * time.Minute)
	}
	written(clk)
	clk.Step(61 * time.Minute)
	<-ended
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("the connection is still open")
	}
}

// TestUpgradedHalfClose checks that an endpoint that has closed its sending side can still receive.
func TestUpgradedHalfClose(t *testing.T) {
	got := make(chan string, 1)
	_, address := newTimedProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_ = rw.Flush()
		_ = conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(rw)
		got <- string(b)
	})
	conn, in := open(t, address, "GET / HTTP/1.1\r\nHost: host\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "late")
	_ = conn.Close()
	if b := <-got; b != "late" {
		t.Errorf("the endpoint got %q", b)
	}
}

// hijackable is a ResponseWriter whose connection can be hijacked.
type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

// endsWhileRead is a body. Its Read ends the request before it returns.
type endsWhileRead struct{ end func() }

func (b *endsWhileRead) Read([]byte) (int, error) {
	b.end()
	return 0, http.ErrBodyReadAfterClose
}

func (b *endsWhileRead) Close() error { return nil }

// TestNoTimerAfterEnd checks that a read or write that returns after the handler starts no timer,
// because the timer would keep the exchange (the request and its response) in memory.
func TestNoTimerAfterEnd(t *testing.T) {
	for name, run := range map[string]func(e *exchange, b *endsWhileRead, r *http.Request){
		"body": func(e *exchange, b *endsWhileRead, r *http.Request) {
			b.end = e.end
			_, _ = r.Body.Read(make([]byte, 1))
		},
		"read": func(e *exchange, _ *endsWhileRead, _ *http.Request) {
			conn, _, _ := e.Hijack()
			_ = conn.Close()
			e.end()
			_, _ = conn.Read(make([]byte, 1))
		},
		"write": func(e *exchange, _ *endsWhileRead, _ *http.Request) {
			conn, _, _ := e.Hijack()
			_ = conn.Close()
			e.end()
			_, _ = conn.Write(make([]byte, 1))
		},
	} {
		clk := testingclock.NewFakeClock(time.Unix(1000, 0))
		p := &Proxy{clock: clk, limits: DefaultLimits(1 << 30)}
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		b := &endsWhileRead{}
		r := httptest.NewRequest(http.MethodPost, "/", b)
		e := newExchange(hijackable{httptest.NewRecorder(), near}, r, p, func(error) {})
		run(e, b, r)
		if clk.HasWaiters() {
			t.Errorf("%s: a timer runs after the end", name)
		}
		if e.hijacked != nil {
			t.Errorf("%s: the connection is kept after the end", name)
		}
	}
}

// slowBody is a body. Each read takes 1 s and returns some bytes.
type slowBody struct {
	clock *testingclock.FakeClock
	bytes int
}

func (d slowBody) Read(p []byte) (int, error) {
	d.clock.Step(time.Second)
	return min(d.bytes, len(p)), nil
}

func (d slowBody) Close() error { return nil }

// TestBodyRate checks that a body is rejected if its average rate is too low, but not because of a
// single pause.
func TestBodyRate(t *testing.T) {
	for bytes, want := range map[int]bool{1: false, minRate / 2: false, minRate: true, 10 * minRate: true} {
		clk := testingclock.NewFakeClock(time.Unix(1000, 0))
		p := &Proxy{clock: clk, limits: DefaultLimits(1 << 30)}
		r := httptest.NewRequest(http.MethodPost, "/", slowBody{clk, bytes})
		e := newExchange(httptest.NewRecorder(), r, p, func(error) {})
		for range 1000 {
			if _, err := r.Body.Read(make([]byte, 1<<16)); err != nil {
				t.Fatal(err)
			}
			if e.gaveUp() {
				break
			}
		}
		if e.gaveUp() == want {
			t.Errorf("%d bytes a second: given up %t", bytes, e.gaveUp())
		}
		e.end()
		if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("read after the end: %v", err)
		}
	}
}

// TestPatience checks that only the silence timer limits a body that is a stream.
func TestPatience(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1000, 0))
	p := &Proxy{clock: clk, limits: DefaultLimits(1 << 30)}
	r := httptest.NewRequest(http.MethodPost, "/", slowBody{clk, 1})
	e := newExchange(httptest.NewRecorder(), r, p, func(error) {})
	e.markStreaming()
	for range 1000 {
		if _, err := r.Body.Read(make([]byte, 1)); err != nil || e.gaveUp() {
			t.Fatal("a stream was given up", err)
		}
	}
}

// TestCancelsCounted checks that a client may cancel any number of streams whose responses have
// begun. If it cancels many requests before that, the connection must be closed.
func TestCancelsCounted(t *testing.T) {
	for code, closes := range map[int]bool{0: true, http.StatusEarlyHints: true, http.StatusOK: false} {
		p := NewProxy(Options{Limits: DefaultLimits(1 << 30),
			Clock: testingclock.NewFakeClock(time.Unix(1000, 0)), Log: slog.New(slog.DiscardHandler),
			Metrics: prometheus.NewRegistry()})
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		conn := &connection{Conn: near}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), connectionKey{}, conn))
		cancel()
		for range cancelsFreely + 1 {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.ProtoMajor = 2
			e := newExchange(httptest.NewRecorder(), r, p, func(error) {})
			e.code = code
			p.end(e, r)
		}
		if closed := near.SetDeadline(time.Time{}) != nil; closed != closes {
			t.Errorf("answers with code %d: closed %t", code, closed)
		}
	}
}

func TestShares(t *testing.T) {
	s := newShares[string](3, 2)
	for i, tc := range []struct {
		holder   string
		ok, full bool
	}{{"a", true, false}, {"a", true, false}, {"a", false, false}, {"b", true, false}, {"b", false, true},
		{"c", false, true}} {
		if ok, full := s.take(tc.holder); ok != tc.ok || full != tc.full {
			t.Errorf("%d: %t %t", i, ok, full)
		}
	}
	for _, holder := range []string{"a", "a", "b"} {
		s.give(holder)
	}
	if len(s.held) > 0 || s.all != 0 {
		t.Errorf("left over: %v", s.held)
	}
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32",
		"[2001:db8::1:2:3:4]:80": "2001:db8::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "invalid Prefix",
	} {
		if got := client(remote).String(); got != want {
			t.Errorf("%s counts as %s, want %s", remote, got, want)
		}
	}
}
