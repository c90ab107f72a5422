// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loopback passes HTTP requests to a handler in the same process without a connection, so
// that clients and informers can run in the process of their server. Responses are streamed: a
// watch receives each event when the handler flushes it.
package loopback

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// RoundTripper sends every request to Handler. It does not support upgrades (SPDY, WebSocket).
type RoundTripper struct {
	Handler http.Handler
}

// RoundTrip runs the handler in a new goroutine and returns when the handler has written its
// header. The goroutine ends when the handler returns. The context of the handler's request ends
// when req's context ends or the response's body is closed.
func (t RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	in := req.Clone(ctx)
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	body, pipe := io.Pipe()
	w := &responseWriter{header: http.Header{}, pipe: pipe, started: make(chan struct{})}
	go func() {
		defer func() {
			var err error
			if p := recover(); p != nil {
				err = fmt.Errorf("handler panicked: %v", p)
			}
			w.finish(err)
			cancel()
			_ = in.Body.Close()
		}()
		t.Handler.ServeHTTP(w, in)
	}()
	select {
	case <-w.started:
	case <-req.Context().Done():
		_ = body.CloseWithError(req.Context().Err())
		return nil, req.Context().Err()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: answer{body, cancel}, ContentLength: -1, Request: req,
	}, nil
}

// answer is the body of a response. Closing it ends the context of the handler's request.
type answer struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the request.
func (a answer) Close() error {
	a.cancel()
	return a.PipeReader.Close()
}

// responseWriter passes what a handler writes to the reader of the response's body.
type responseWriter struct {
	header http.Header
	pipe   *io.PipeWriter

	once    sync.Once
	started chan struct{} // closed once status and sent are set
	status  int
	sent    http.Header
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. It makes RoundTrip return, unless status is
// informational.
func (w *responseWriter) WriteHeader(status int) {
	if status >= 100 && status < 200 {
		return
	}
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.started)
	})
}

// Write implements http.ResponseWriter. It blocks until the reader of the response's body has read
// b.
func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(b)
}

// Flush implements http.Flusher. It writes the header if that has not been done. There is nothing
// else to flush, because Write does not buffer.
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }

func (w *responseWriter) finish(err error) {
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
	w.WriteHeader(http.StatusOK)
	_ = w.pipe.CloseWithError(err) // the reader gets io.EOF for nil
}
