// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server_test

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/apiserver/http2server/http2test"
)

const streams = 10 // maximum number of streams of a connection in these tests

func fewStreams(s *http.Server) { s.HTTP2.MaxConcurrentStreams = streams }

// unixSocket makes a server listen on a Unix socket. Tests whose client never reads need one. Over
// TCP, a kernel with a full receive buffer may drop every segment from the server, including the
// acknowledgements of the client's data. The client could then not send any more, although the
// server still reads.
func unixSocket(t *testing.T) func(*http.Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	return func(s *http.Server) { s.Addr = path }
}

// TestRapidReset opens and resets streams while their handlers keep running (CVE-2023-44487,
// CVE-2023-39325). The server must not run more handlers than its limit.
func TestRapidReset(t *testing.T) {
	var running, most atomic.Int64
	release := make(chan struct{})
	address := http2test.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
	}), fewStreams)
	defer close(release)
	c := http2test.Dial(t, address, 0)
	go func() {
		for id := uint32(1); id < 10_000; id += 2 {
			if c.Begin(id, "GET", "/", true) != nil || c.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	if c.Until(http2test.Left(http2.ErrCodeEnhanceYourCalm)) == nil {
		t.Error("the server does not close the connection")
	}
	if n := most.Load(); n > streams {
		t.Errorf("%d handlers ran at once", n)
	}
}

// TestTooManyStreams checks that the server refuses streams beyond the limit, and serves the
// others.
func TestTooManyStreams(t *testing.T) {
	release := make(chan struct{})
	address := http2test.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), fewStreams)
	c := http2test.Dial(t, address, 0)
	for i := range uint32(streams + 1) {
		c.Get(2*i+1, "/")
	}
	f, ok := c.Until(http2test.Reset(2*streams + 1)).(*http2.RSTStreamFrame)
	if !ok || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("the stream too many: %v", f)
	}
	close(release)
	ended := map[uint32]bool{}
	c.Until(func(f http2.Frame) bool {
		if id := f.Header().StreamID; http2test.Ended(id)(f) {
			ended[id] = true
		}
		return len(ended) == streams
	})
	if len(ended) != streams {
		t.Errorf("%d streams have ended", len(ended))
	}
}

// flood calls write repeatedly, without reading, until the server closes the connection. It fails
// the test if the server does not, or if the server uses much memory meanwhile.
func flood(t *testing.T, c *http2test.Client, write func(i int) error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	closed := false
	for i := range 1_000_000 {
		if err := write(i); err != nil {
			closed = true
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if !closed {
		t.Error("the connection is still open")
	}
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 8<<20 {
		t.Errorf("the flood takes %d bytes", more)
	}
}

// TestFloods sends frames that the server has to respond to, and reads no response (CVE-2019-9512,
// CVE-2019-9514 and CVE-2019-9515). The server must close the connection.
func TestFloods(t *testing.T) {
	for name, write := range map[string]func(c *http2test.Client, i int) error{
		"ping":     func(c *http2test.Client, _ int) error { return c.WritePing(false, [8]byte{}) },
		"settings": func(c *http2test.Client, _ int) error { return c.WriteSettings() },
		"reset": func(c *http2test.Client, i int) error {
			return c.WriteRawFrame(
				http2.FrameHeaders, http2.FlagHeadersEndHeaders, uint32(2*i+1), []byte{0x80},
			) // HPACK's index 0 is an error
		},
		"refused": func(c *http2test.Client, i int) error { return c.Begin(uint32(2*i+1), "GET", "/", true) },
		"unknown stream": func(c *http2test.Client, i int) error {
			if i == 0 {
				return c.Begin(1, "GET", "/", true)
			}
			return c.WriteData(1, false, []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			address := http2test.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }),
				fewStreams, unixSocket(t))
			c := http2test.Dial(t, address, 0)
			flood(t, c, func(i int) error { return write(c, i) })
		})
	}
}

// TestEmptyAnswers requests responses that consist of a header only, one after the other, and reads
// none of them.
func TestEmptyAnswers(t *testing.T) {
	served, ended := make(chan struct{}), make(chan struct{})
	address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 8000)) // too long for HPACK's table
		select {
		case served <- struct{}{}:
		case <-ended:
		}
	}), unixSocket(t), func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(ended)
			}
		}
	})
	c := http2test.Dial(t, address, 0)
	for i := range uint32(5000) {
		if c.Begin(2*i+1, "HEAD", "/", true) != nil {
			return
		}
		select {
		case <-served:
		case <-ended:
			return
		}
	}
	t.Error("the server keeps 5000 answers that the client does not read")
}

// TestUselessFrames sends many frames that change nothing (CVE-2019-9513 and CVE-2019-9518). The
// server must still respond to the request.
func TestUselessFrames(t *testing.T) {
	address := http2test.Serve(
		t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
		fewStreams,
	)
	c := http2test.Dial(t, address, 0)
	c.Must(c.Begin(1, "POST", "/", false))
	for i := range uint32(20_000) {
		c.Must(c.WritePriority(2*i+3, http2.PriorityParam{StreamDep: 1, Weight: 3}))
		c.Must(c.WriteData(1, false, nil))
		c.Must(c.WriteWindowUpdate(1, 1))
		c.Must(c.WriteRawFrame(0x42, 0, 0, []byte("unknown")))
	}
	c.Must(c.WriteData(1, true, nil))
	if f := c.Until(http2test.Ended(1)); f == nil {
		t.Error("there is no answer")
	}
}

// TestContinuationFlood sends a header that never ends (CVE-2023-45288). The server must close the
// connection.
func TestContinuationFlood(t *testing.T) {
	address := http2test.Serve(t, http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("the request was served") },
	),
		fewStreams, func(s *http.Server) { s.MaxHeaderBytes = 64 << 10 })
	c := http2test.Dial(t, address, 0)
	block := c.Block("GET", "/")
	c.Must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndStream: true}))
	field := append([]byte{0x00, 0x01, 'a', 0x7f, 0x80 + 73, 0x3e}, make([]byte, 8000)...) // 8,000 bytes
	for i := 10; i < len(field); i++ {
		field[i] = 'b'
	}
	flood(t, c, func(int) error { return c.WriteContinuation(1, false, field[:min(len(field), 8006)]) })
}

// TestHeaderBomb sends a small header that refers many times to a large field of HPACK's table
// (CVE-2016-1544 and similar attacks). The server must respond with 431.
func TestHeaderBomb(t *testing.T) {
	address := http2test.Serve(t, http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("the request was served") },
	),
		fewStreams, func(s *http.Server) { s.MaxHeaderBytes = 64 << 10 })
	c := http2test.Dial(t, address, 0)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	block := append(
		c.Block("GET", "/", hpack.HeaderField{Name: "a", Value: strings.Repeat("b", 4000)}), make([]byte, 10_000)...,
	)
	for i := len(block) - 10_000; i < len(block); i++ {
		block[i] = 0x80 | 62 // the newest field of the table
	}
	c.Must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true}))
	f, _ := c.Until(func(f http2.Frame) bool { return f.Header().StreamID == 1 }).(*http2.MetaHeadersFrame)
	if f == nil || f.PseudoValue("status") != "431" {
		t.Errorf("got %v", f)
	}
}

// TestSlowHeader sends nothing, or the beginning of a header, and does not answer pings. The server
// must close the connection after one ping.
func TestSlowHeader(t *testing.T) {
	for name, begin := range map[string]func(c *http2test.Client) error{
		"silent": func(*http2test.Client) error { return nil },
		"header": func(c *http2test.Client) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.Block("GET", "/")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := http2test.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(s *http.Server) {
				s.HTTP2.SendPingTimeout, s.HTTP2.PingTimeout = limit, limit
			})
			c := http2test.Dial(t, address, 0)
			c.Must(begin(c))
			pings := 0
			c.Until(func(f http2.Frame) bool { // until the connection ends
				if _, ok := f.(*http2.PingFrame); ok {
					pings++
				}
				return false
			})
			if pings != 1 {
				t.Errorf("%d pings", pings)
			}
		})
	}
}

// TestNoPreface checks that the server closes a connection on which the client does not send the
// HTTP/2 preface.
func TestNoPreface(t *testing.T) {
	address := http2test.Serve(
		t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		func(s *http.Server) { s.ReadHeaderTimeout = limit },
	)
	for name, begin := range map[string]string{"nothing": "", "HTTP/1": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"no settings": http2.ClientPreface} {
		t.Run(name, func(t *testing.T) {
			conn := http2test.DialRaw(t, address)
			if _, err := io.WriteString(conn, begin); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error(err)
			}
		})
	}
}
