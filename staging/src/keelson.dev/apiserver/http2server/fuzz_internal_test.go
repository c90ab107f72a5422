// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/api/clock"
)

// recorded is a connection whose client has sent all its bytes in advance and reads everything.
type recorded struct {
	net.Conn
	in io.Reader

	mu  sync.Mutex
	out bytes.Buffer
}

func (r *recorded) Read(p []byte) (int, error) { return r.in.Read(p) }

func (r *recorded) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *recorded) Close() error                     { return nil }
func (r *recorded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (r *recorded) SetReadDeadline(time.Time) error  { return nil }
func (r *recorded) SetWriteDeadline(time.Time) error { return nil }

// requests returns what a client sends for some requests.
func requests(change func(f *http2.Framer, block func(method string) []byte)) []byte {
	var out, b bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f, e := http2.NewFramer(&out, nil), hpack.NewEncoder(&b)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	change(f, func(method string) []byte {
		b.Reset()
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: method},
			{Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: "trailer", Value: "t"}} {
			_ = e.WriteField(field)
		}
		return bytes.Clone(b.Bytes())
	})
	return out.Bytes()
}

// FuzzConnection serves arbitrary bytes. When they have been read, the connection and its handlers
// must end. What the server sends must be valid frames, with no more data than the client's
// settings allow.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(requests(func(f *http2.Framer, block func(string) []byte) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("GET"), EndHeaders: true,
			EndStream: true})
		_ = f.WriteWindowUpdate(1, 1000)
		_ = f.WriteWindowUpdate(0, 1000)
		_ = f.WritePing(false, [8]byte{1})
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15})
	}))
	f.Add(requests(func(f *http2.Framer, block func(string) []byte) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST"), EndHeaders: true})
		_ = f.WriteDataPadded(1, false, []byte("abc"), make([]byte, 7))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block("HEAD"), EndStream: true})
		_ = f.WriteContinuation(3, true, nil)
		_ = f.WriteRSTStream(3, http2.ErrCodeCancel)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x40, 1, 't', 1, 'x'},
			EndHeaders: true, EndStream: true})
		_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<16 {
			return
		}
		s := &server{http: &http.Server{WriteTimeout: time.Minute}, clock: clock.Real(),
			conns: map[*conn]struct{}{}, limits: http.HTTP2Config{
				MaxConcurrentStreams: 5, MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerStream: 1 << 16,
				MaxReceiveBufferPerConnection: 1 << 17,
			}}
		s.buffers.New = func() any { return new([]byte) }
		r := &recorded{in: bytes.NewReader(in)}
		c := newConn(s, r, r, &tls.ConnectionState{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(w, r.Body); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			w.Header().Set(http.TrailerPrefix+"T", "x")
			_, _ = w.Write(make([]byte, 20_000))
		}), context.Background())
		c.serve()
		for running := 1; running > 0; runtime.Gosched() { // nothing keeps handlers from returning
			c.mu.Lock()
			running = c.running
			c.mu.Unlock()
		}
		if len(c.streams) > 5 {
			t.Errorf("%d streams", len(c.streams))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		frames := http2.NewFramer(nil, &r.out)
		for {
			f, err := frames.ReadFrame()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatalf("the server's output: %v", err)
			}
			if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > maxSend {
				t.Errorf("a frame of %d bytes", len(d.Data()))
			}
		}
	})
}
