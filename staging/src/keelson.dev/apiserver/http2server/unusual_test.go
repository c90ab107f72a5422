// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server_test

import (
	"io"
	"net/http"
	"runtime"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/apiserver/http2server/http2test"
)

// TestLateTrailers sends trailers on a stream that the server has already closed, as a client does
// that has not received the response yet. The connection must not end.
func TestLateTrailers(t *testing.T) {
	address := http2test.Serve(
		t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "early") }),
	)
	c := http2test.Dial(t, address, 0)
	c.Must(c.Begin(1, "POST", "/", false))
	reset, ok := c.Until(http2test.Reset(1)).(*http2.RSTStreamFrame)
	if !ok || reset.ErrCode != http2.ErrCodeNo {
		t.Fatalf("the rest of the request is wanted: %v", reset)
	}
	trailers := c.Fields(hpack.HeaderField{Name: "x-checksum", Value: "1234"})
	c.Must(
		c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: trailers, EndHeaders: true, EndStream: true}),
	)
	// The server must have decoded the trailers although it ignores them: they are now in HPACK's
	// table, and this header refers to them.
	c.Must(c.Begin(3, "GET", "/", true, hpack.HeaderField{Name: "x-checksum", Value: "1234"}))
	if f := c.Until(http2test.Ended(3)); f == nil {
		t.Error("the connection has ended")
	}
}

// TestStreamUsedAgain checks that the server ends the connection if a second request uses the ID of
// a closed stream.
func TestStreamUsedAgain(t *testing.T) {
	address := http2test.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c := http2test.Dial(t, address, 0)
	c.Get(1, "/")
	c.Until(http2test.Ended(1))
	c.Get(1, "/")
	if c.Until(http2test.Left(http2.ErrCodeStreamClosed)) == nil {
		t.Error("the connection does not end with STREAM_CLOSED")
	}
}

// TestGoexit checks that the server resets the stream of a handler that calls runtime.Goexit, as
// net/http does, and starts the next handler.
func TestGoexit(t *testing.T) {
	address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/exit" {
			runtime.Goexit()
		}
	}), func(s *http.Server) { s.HTTP2.MaxConcurrentStreams = 1 })
	c := http2test.Dial(t, address, 0)
	c.Get(1, "/exit")
	reset, ok := c.Until(http2test.Ended(1)).(*http2.RSTStreamFrame)
	if !ok || reset.ErrCode != http2.ErrCodeInternal {
		t.Fatalf("stream of a handler that has not returned: %v", reset)
	}
	c.Get(3, "/")
	if f, ok := c.Until(http2test.Ended(3)).(*http2.DataFrame); !ok {
		t.Errorf("the next request: %v", f)
	}
}
