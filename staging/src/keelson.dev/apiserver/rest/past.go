// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"io"
	"net/http"

	"keelson.dev/apiserver/streams"
)

// body returns what sends the body of a large answer: past the HTTP server, where that can be
// done, for half of what it takes to be sent by it.
func (a *answer) body() io.Writer {
	conn := streams.FromContext(a.r.Context())
	if conn == nil || a.r.Method == http.MethodHead {
		return a.w
	}
	w, size := a.w, (*int64)(nil)
	if rec, ok := w.(*recorder); ok { // what Take has the server write is no part of the answer
		w, size = rec.ResponseWriter, &rec.size
	}
	stream, err := conn.Take(a.r.Context(), w)
	if err != nil {
		a.abort()
	}
	if stream == nil {
		return a.w
	}
	a.taken = stream
	return past{a.r.Context(), stream, size}
}

// abort breaks an answer off of which the client has a part: it must not take that for the whole.
func (a *answer) abort() {
	if a.taken != nil {
		a.taken.Release()
	}
	panic(http.ErrAbortHandler)
}

// past sends a body past the HTTP server. It implements io.Writer.
type past struct {
	ctx  context.Context
	to   *streams.Stream
	size *int64 // counts what is sent; may be nil
}

// Write implements io.Writer.
func (p past) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err // its time is over, also if the client goes on to read
	}
	if err := p.to.Send(p.ctx, b); err != nil {
		return 0, err
	}
	if p.size != nil {
		*p.size += int64(len(b))
	}
	return len(b), nil
}
