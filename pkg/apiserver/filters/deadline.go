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

// ConnectionTimeouts returns how long a client may take to send a request and how long to read the
// answer, if the server lets ordinary requests take limit. Both are longer than limit, so that a
// request that timed out still gets its answer. The write timeout is the longer one: the answer to
// a rejected request is sent only after the rest of its body has arrived or timed out.
//
// They are the HTTP server's ReadTimeout and WriteTimeout. So they also cover what no filter sees:
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
		defer endBody(ctx, w, r)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// endBody makes reads of r's body fail once ctx is done, until the caller calls stop. It does
// nothing for upgrade requests: only ConnectionTimeouts apply to them, until they are upgraded.
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
			<-ended // w must not be used after the handler has returned
		}
	}
}

// withoutDeadline removes the connection's deadlines from long-running requests. It runs after all
// filters that can reject a request, so that the deadlines apply to rejections.
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
