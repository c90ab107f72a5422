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

// ConnectionTimeouts returns how long a client may take to send a request and how long to read the
// answer, if the server lets ordinary requests take limit. Both are longer than limit, so that a
// request that timed out still gets its answer. The write timeout is the longer one: the answer to
// a rejected request is sent only after the rest of its body has arrived or timed out.
//
// They are the HTTP server's ReadTimeout and WriteTimeout. So they also limit what no filter sees:
// the rest of a rejected request's body, and output that is still buffered when the handler
// returns. Chain removes them from long-running requests.
func ConnectionTimeouts(limit time.Duration) (read, write time.Duration) {
	return limit + limit/8, limit + limit/4
}

// withDeadline cancels the context of ordinary requests after the server's limit, or after
// ?timeout if that is less, and then makes reads of their bodies fail. All handlers stop when their
// context ends, so no handler has to be abandoned in a goroutine. A client that does not read its
// answer can block the handler for as long as ConnectionTimeouts allows.
func withDeadline(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || LongRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		limit, err := timeout(r, cfg.RequestTimeout)
		if err != nil {
			failed(cfg, apierrors.NewBadRequest(err.Error())).ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		w, stop := endBody(ctx, w, r)
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.Context().Err() == nil {
			cfg.Metrics.terminate(info, http.StatusGatewayTimeout)
		}
	})
}

// endBody makes reads of r's body fail once ctx is done, until the caller calls stop. It does
// nothing for upgrade requests: until they are upgraded, only ConnectionTimeouts apply to them. The
// handler must use the writer that endBody returns.
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

// lastAnswer closes an HTTP/1 connection with the answer to a request that has timed out. Once the
// body has been read, the HTTP server itself reads from the connection to notice that the client is
// gone. If the deadline interrupts that read, the server cancels the context of all later requests
// of the connection. So the deadline is set only if the answer can still say that the connection
// closes; otherwise reads of the body end by ConnectionTimeouts.
type lastAnswer struct {
	http.ResponseWriter
	over     func() error // Err of the request's context
	endReads func()

	mu           sync.Mutex
	begun, ended bool
}

// end makes reads of the connection fail, unless the answer has begun.
func (l *lastAnswer) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.ended = true
		l.endReads()
	}
}

// begin marks the answer as begun. The caller sends the header next.
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
	if !l.ended { // if the handler has noticed the end of its context before endBody has
		l.endReads()
	}
	l.Header().Set("Connection", "close")
}

// WriteHeader begins the answer, unless code is informational.
func (l *lastAnswer) WriteHeader(code int) {
	if code >= http.StatusOK {
		l.begin()
	}
	l.ResponseWriter.WriteHeader(code)
}

// Write begins the answer if it has not begun yet.
func (l *lastAnswer) Write(p []byte) (int, error) {
	l.begin()
	return l.ResponseWriter.Write(p)
}

// Flush begins the answer if it has not begun yet.
func (l *lastAnswer) Flush() {
	l.begin()
	_ = http.NewResponseController(l.ResponseWriter).Flush() // fails if the client has closed the connection
}

// Unwrap implements the method that http.ResponseController looks for.
func (l *lastAnswer) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// withoutDeadline removes the connection's deadlines from long-running requests. It runs after all
// filters that can reject a request, so that the deadlines apply to rejections.
func withoutDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && LongRunning(r, info) {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Time{}) // fails if the client has closed the connection
			_ = control.SetWriteDeadline(time.Time{})
		}
		next.ServeHTTP(w, r)
	})
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
