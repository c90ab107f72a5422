// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// withMaxInFlight rejects requests that exceed the limits of concurrent reads and writes.
// Long-running requests are exempt. Requests of system:masters are exempt too, so that
// administrators can use an overloaded server.
func withMaxInFlight(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	reads, writes := slots(cfg.MaxReadsInFlight), slots(cfg.MaxWrites)
	return func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || LongRunning(r, info) {
			next(w, r)
			return
		}
		limit, kind := writes, "mutating"
		if info.Verb == "get" || info.Verb == "list" || info.Verb == "watch" {
			limit, kind = reads, "readOnly"
		}
		if limit == nil {
			next(w, r)
			return
		}
		select {
		case limit <- struct{}{}:
			defer func() { <-limit }()
			next(w, r)
		default:
			if u, ok := request.UserFrom(r.Context()); ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
				next(w, r)
				return
			}
			cfg.Metrics.drop(kind, info)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		}
	}
}

func slots(n int) chan struct{} {
	if n <= 0 {
		return nil
	}
	return make(chan struct{}, n)
}

// InFlight counts the requests in progress that a shutdown waits for. It is safe for concurrent
// use.
type InFlight struct {
	mu      sync.Mutex
	n       int
	closing bool
	idle    chan struct{} // closed once closing is true and n is 0
}

// NewInFlight returns an InFlight that accepts requests.
func NewInFlight() *InFlight { return &InFlight{idle: make(chan struct{})} }

func (f *InFlight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return false
	}
	f.n++
	return true
}

func (f *InFlight) draining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closing
}

func (f *InFlight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.closing && f.n == 0 {
		close(f.idle)
	}
}

// Drain rejects new requests from now on, and waits until those in progress have ended.
func (f *InFlight) Drain(ctx context.Context) error {
	f.mu.Lock()
	if !f.closing {
		f.closing = true
		if f.n == 0 {
			close(f.idle)
		}
	}
	f.mu.Unlock()
	select {
	case <-f.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withInFlight uses cfg.InFlight to count the requests in progress, except long-running ones. Once
// cfg.InFlight.Drain has been called, withInFlight rejects new requests, except long-running ones.
func withInFlight(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	if cfg.InFlight == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && LongRunning(r, info) {
			next(w, r)
			return
		}
		if !cfg.InFlight.enter() {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			cfg.WriteError(w, r, apierrors.NewServiceUnavailable("apiserver is shutting down."))
			return
		}
		defer cfg.InFlight.leave()
		next(w, r)
	}
}
