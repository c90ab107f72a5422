// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"keelson.dev/apiserver/streams"
	"keelson.dev/apiserver/streams/streamstest"
)

// limit is how long clients may read nothing in these tests.
const limit = time.Second

// TestStalled checks that Send fails if the client reads but grants too little window, even if the
// handler has no deadline.
func TestStalled(t *testing.T) {
	const granted = 17 << 20 // of the connection's window
	for name, tc := range map[string]struct {
		window uint32 // of each stream
		size   int
		closed bool // whether the connection is closed
	}{
		"stream":     {64 << 10, 100_000, false},
		"connection": {1<<31 - 1, granted + 1<<20, true},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan error, 1)
			address := streamstest.ServeFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/taken" {
					plain(w, r)
					return
				}
				control := http.NewResponseController(w)
				w.WriteHeader(http.StatusOK)
				_ = control.SetWriteDeadline(time.Time{})
				_ = control.Flush()
				s, err := streams.FromContext(r.Context()).Take(r.Context(), w)
				if s == nil {
					t.Errorf("the stream was not taken: %v", err)
					return
				}
				defer s.Release()
				sent <- s.Send(context.Background(), pattern(0, tc.size))
			}), limit)
			c := dial(t, address, granted, http2.Setting{ID: http2.SettingInitialWindowSize, Val: tc.window})
			c.get(1, "/taken")
			frames, gone := make(chan uint32), make(chan struct{})
			go func() { // until the connection is closed, by the server or at the end of the test
				defer close(gone)
				for {
					f, err := c.ReadFrame()
					if err != nil {
						return
					}
					if d, ok := f.(*http2.DataFrame); ok && d.StreamID != 1 {
						frames <- d.Length
					}
				}
			}()
			if err := <-sent; err == nil {
				t.Error("Send did not fail")
			}
			c.get(3, "/1000") // the server believes that the window allows this answer
			select {
			case n := <-frames:
				if tc.closed || n != 1000 {
					t.Errorf("got %d bytes", n)
				}
			case <-gone:
				if !tc.closed {
					t.Error("the connection is closed")
				}
			}
			_ = c.conn.Close()
			<-gone
		})
	}
}

// TestStalledStreamOfBusyConnection checks that a stream ends if its client does not open its
// window, even if the client keeps granting more of the connection's window.
func TestStalledStreamOfBusyConnection(t *testing.T) {
	sent := make(chan error, 1)
	address := streamstest.ServeFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		w.WriteHeader(http.StatusOK)
		_ = control.SetWriteDeadline(time.Time{})
		_ = control.Flush()
		s, err := streams.FromContext(r.Context()).Take(r.Context(), w)
		if s == nil {
			t.Errorf("the stream was not taken: %v", err)
			return
		}
		defer s.Release()
		ctx, cancel := context.WithTimeout(context.Background(), 10*limit)
		defer cancel()
		sent <- s.Send(ctx, pattern(0, 100_000))
	}), limit)
	c := dial(t, address, 17<<20)
	c.get(1, "/taken")
	go func() {
		for {
			if _, err := c.ReadFrame(); err != nil {
				return
			}
		}
	}()
	grants := time.NewTicker(limit / 10)
	defer grants.Stop()
	for {
		select {
		case err := <-sent:
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("sending ended with: %v", err)
			}
			return
		case <-grants.C:
			c.must(c.WriteWindowUpdate(0, 1))
		}
	}
}

// TestUnreadConnection checks that a connection is closed if its client reads nothing, even if its
// answers have no deadline.
func TestUnreadConnection(t *testing.T) {
	sent := make(chan error, 1)
	address := streamstest.ServeFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		w.WriteHeader(http.StatusOK)
		_ = control.SetWriteDeadline(time.Time{})
		_ = control.Flush()
		s, err := streams.FromContext(r.Context()).Take(r.Context(), w)
		if s == nil {
			t.Errorf("the stream was not taken: %v", err)
			return
		}
		defer s.Release()
		sent <- s.Send(context.Background(), pattern(0, 64<<20)) // more than the kernels buffer
		<-r.Context().Done()
	}), limit)
	c := dial(t, address, 1<<30, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	c.get(1, "/taken")
	if err := <-sent; err == nil {
		t.Error("Send did not fail")
	}
}
