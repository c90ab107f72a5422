// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// ConnectionTimeouts returns how long the client of a request may take to send it, and how long to
// read the answer, for a server whose ordinary requests may take limit. Both are longer than that, so
// that also a request whose time is over is answered. The second is the longer one: the answer to a
// request that was refused leaves when the rest of its body has come, or its time is over.
//
// They are the ReadTimeout and the WriteTimeout of the HTTP server, so that they hold also for what
// no filter sees: the rest of a refused request's body, and what is left of an answer when its
// handler has returned. Chain takes them off long-running requests.
func ConnectionTimeouts(limit time.Duration) (read, write time.Duration) {
	return limit + limit/8, limit + limit/4
}

// withDeadline ends the context of ordinary requests after the server's limit,
// or after what ?timeout asks for if that is less, and then the reading of their bodies.
// Handlers do no work that does not heed its context, so none needs to be abandoned in a
// goroutine of its own. A client that does not read its answer holds the handler for as long as
// ConnectionTimeouts says.
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
		defer endBody(ctx, w, r)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// endBody has reads of r's body fail once ctx is done, until the function that it returns is
// called. A connection that is about to be used otherwise has ConnectionTimeouts alone, and only
// until then.
func endBody(ctx context.Context, w http.ResponseWriter, r *http.Request) (stop func()) {
	if r.Body == nil || r.Body == http.NoBody || httpstream.IsUpgradeRequest(r) {
		return func() {}
	}
	ended := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // fails if the client is gone
	})
	return func() {
		if !end() {
			<-ended // w is not to be used when the handler has returned
		}
	}
}

// withoutDeadline takes the deadlines of the connection off long-running requests. It comes after
// all filters that refuse a request: what they answer has to be read in time.
func withoutDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && LongRunning(r, info) {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Time{}) // these fail if the client is gone
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
		return 0, fmt.Errorf("invalid timeout specified in the request URL - %v", err)
	}
	if d <= 0 || d > limit {
		return limit, nil
	}
	return d, nil
}
