// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// ConnectionTimeouts returns how long a client may take to send a request, and how long to read the
// answer. limit is the time limit of ordinary requests. Both results are longer than limit, so that
// a request that exceeds limit still gets an answer. The write timeout is the longer one, because
// the server answers a rejected request only when the rest of its body has arrived or the read
// timeout has ended.
//
// The results are for ReadTimeout and WriteTimeout of http.Server. There they also apply while no
// handler runs: to the rest of a rejected request's body, and to output that is still buffered when
// the handler returns. Chain removes these timeouts from long-running requests.
func ConnectionTimeouts(limit time.Duration) (read, write time.Duration) {
	return limit + limit/8, limit + limit/4
}

// withDeadline limits ordinary requests to the server's time limit, or to the parameter timeout if
// it is shorter. At the deadline, it cancels the context of the request and makes reads of the body
// fail. All handlers return when their context is canceled. A client that does not read its answer
// can block the handler for longer, at most as long as ConnectionTimeouts allows.
func withDeadline(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || LongRunning(r, info) {
			next(w, r)
			return
		}
		cfg.limit(next, w, r, info)
	}
}

// limit serves an ordinary request and ends it at its deadline.
func (c *Config) limit(next http.HandlerFunc, w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	limit, err := timeout(r, c.RequestTimeout)
	if err != nil {
		failed(*c, apierrors.NewBadRequest(err.Error()))(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	w, stop := endBody(ctx, w, r)
	defer stop()
	next(w, r.WithContext(ctx))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.Context().Err() == nil {
		c.Metrics.terminate(info, http.StatusGatewayTimeout)
	}
}

// endBody makes reads of r's body fail once ctx is done, unless the caller has called stop before.
// It does nothing for requests to upgrade the connection, to which only ConnectionTimeouts applies.
// The handler must use the writer that endBody returns.
func endBody(ctx context.Context, w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, stop func()) {
	if r.Body == nil || r.Body == http.NoBody || httpstream.IsUpgradeRequest(r) {
		return w, func() {}
	}
	control := http.NewResponseController(w)
	end := func() { _ = control.SetReadDeadline(time.Unix(1, 0)) } // fails if the client has closed the connection
	begin := func() {}
	if r.ProtoMajor == 1 {
		l := &lastAnswer{ResponseWriter: w, over: ctx.Err, endReads: end}
		w, end, begin = responsewriter.WrapForHTTP1Or2(l), l.end, l.begin
	}
	ended := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(ended)
		end()
	})
	return w, func() {
		if !cancel() {
			<-ended // w must not be used after the handler has returned
		}
		begin()
	}
}

// lastAnswer makes reads of the body fail when an HTTP/1 request exceeds its deadline, and closes
// the connection after the answer. The connection cannot be used again after endReads: when a body
// has been read, the HTTP server itself reads from the connection to detect that the client has
// closed it. endReads makes this read fail too, and then the server cancels the contexts of all later
// requests on the connection.
//
// So the answer's header must tell the client that the connection will be closed, and lastAnswer
// calls endReads only before the header is sent. If the deadline passes later, reads of the body fail
// only at the server's read timeout (see ConnectionTimeouts).
type lastAnswer struct {
	http.ResponseWriter
	over     func() error // returns the error of the request's context
	endReads func()       // makes reads from the connection fail

	mu           sync.Mutex
	begun, ended bool
}

// end makes reads of the connection fail, unless the header of the answer has been sent.
func (l *lastAnswer) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.ended = true
		l.endReads()
	}
}

// begin must be called before the header of the answer is sent. If the request has exceeded its
// deadline, it adds to the header that the connection will be closed.
func (l *lastAnswer) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun {
		return
	}
	l.begun = true
	if l.over() == nil {
		return
	}
	if !l.ended { // true if the handler answers before the function of context.AfterFunc has run
		l.endReads()
	}
	l.Header().Set("Connection", "close")
}

// WriteHeader calls begin unless code is informational (below 200).
func (l *lastAnswer) WriteHeader(code int) {
	if code >= http.StatusOK {
		l.begin()
	}
	l.ResponseWriter.WriteHeader(code)
}

// Write calls begin, because the first write sends the header.
func (l *lastAnswer) Write(p []byte) (int, error) {
	l.begin()
	return l.ResponseWriter.Write(p)
}

// Flush calls begin, because the first flush sends the header.
func (l *lastAnswer) Flush() {
	l.begin()
	_ = http.NewResponseController(l.ResponseWriter).Flush() // fails if the client has closed the connection
}

// Unwrap implements the method that http.ResponseController looks for.
func (l *lastAnswer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// withoutDeadline removes the read and write timeouts of the connection for long-running requests.
// It runs after all filters that can reject a request, so that the timeouts apply to rejected
// requests.
func withoutDeadline(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && LongRunning(r, info) {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Time{}) // fails if the client has closed the connection
			_ = control.SetWriteDeadline(time.Time{})
		}
		next(w, r)
	}
}

func timeout(r *http.Request, limit time.Duration) (time.Duration, error) {
	if !strings.Contains(r.URL.RawQuery, "timeout") {
		return limit, nil
	}
	v := r.URL.Query().Get("timeout")
	if v == "" {
		return limit, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, fmt.Errorf("invalid timeout specified in the request URL - %w", err)
	}
	if d <= 0 || d > limit {
		return limit, nil
	}
	return d, nil
}
