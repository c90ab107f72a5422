// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/api/clock"
)

// serveOne serves h on one end of a pipe, with the limits that change sets, and returns the other
// end.
func serveOne(change func(*server), h http.HandlerFunc) (c *conn, end net.Conn) {
	s := &server{
		http: &http.Server{WriteTimeout: time.Minute}, clock: clock.Real(), conns: map[*conn]struct{}{},
		limits: http.HTTP2Config{
			MaxConcurrentStreams: 5, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerStream: 1 << 16, MaxReceiveBufferPerConnection: 1 << 16,
		},
	}
	s.buffers.New = func() any { return new([]byte) }
	change(s)
	end, served := net.Pipe()
	c = newConn(s, served, served, &tls.ConnectionState{}, h, context.Background())
	s.conns[c] = struct{}{}
	go c.serve()
	return c, end
}

// client is like serveOne, but the client has already sent its preface and settings.
func client(change func(*server), h http.HandlerFunc) (c *conn, end net.Conn, f *http2.Framer) {
	c, end = serveOne(change, h)
	return c, end, begin(end)
}

// begin sends the client's preface and settings.
func begin(end net.Conn) *http2.Framer {
	f := http2.NewFramer(end, end)
	_, _ = io.WriteString(end, http2.ClientPreface) // if this fails, reads of the answer fail too
	_ = f.WriteSettings()
	return f
}

// get requests a path.
func get(f *http2.Framer, stream uint32) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"},
	} {
		_ = e.WriteField(field)
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true,
	})
}

// TestLeaveSlowClient checks that a client gets its last response completely even if it reads
// nothing for longer than farewell.
func TestLeaveSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end, f := client(func(*server) {}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 50_000))
		})
		get(f, 1)
		synctest.Wait()
		c.goAway()
		<-time.After(10 * farewell)
		for got, ended := 0, false; !ended; {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
			if d, ok := frame.(*http2.DataFrame); ok {
				got, ended = got+len(d.Data()), d.StreamEnded()
			}
		}
		if n, err := io.Copy(io.Discard, end); err != nil || n == 0 {
			t.Errorf("GOAWAY and the end: %d bytes, %v", n, err)
		}
	})
}

// TestIdlePing checks that a client has PingTimeout to answer a ping, even if the connection
// exceeds IdleTimeout in the meantime.
func TestIdlePing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, end, f := client(func(s *server) {
			s.http.IdleTimeout, s.limits.SendPingTimeout, s.limits.PingTimeout = 10*time.Second, 9*time.Second, 5*time.Second
		}, func(http.ResponseWriter, *http.Request) {})
		defer end.Close()
		var pinged, left time.Time
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				break
			}
			switch frame.(type) {
			case *http2.PingFrame:
				pinged = time.Now()
			case *http2.GoAwayFrame:
				left = time.Now()
			}
		}
		if left.IsZero() || time.Since(left) < farewell {
			t.Errorf("pinged at %v, left at %v, closed at %v", pinged, left, time.Now())
		}
	})
}

// TestDrainNewConnection shuts the server down before the client has sent anything. The server must
// still send SETTINGS first, and then GOAWAY.
func TestDrainNewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := serveOne(func(*server) {}, func(http.ResponseWriter, *http.Request) {})
		defer end.Close()
		synctest.Wait()
		c.server.drain()
		f := http2.NewFramer(end, end)
		go begin(end)
		frame, err := f.ReadFrame()
		if err != nil || frame.Header().Type != http2.FrameSettings {
			t.Fatalf("the first frame: %v, %v", frame, err)
		}
		for ; err == nil && frame.Header().Type != http2.FrameGoAway; frame, err = f.ReadFrame() {
		}
		if err != nil {
			t.Errorf("no GOAWAY: %v", err)
		}
	})
}
