// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Values of the CORS headers.
const (
	corsMethods = "POST, GET, OPTIONS, PUT, DELETE, PATCH"
	corsHeaders = "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, " +
		"X-Requested-With, If-Modified-Since"
	corsExposed = "Date"
)

// withCORS allows pages of matching origins to read answers. It answers OPTIONS requests of such
// pages itself. A browser sends these without credentials before a request, to check whether the
// server allows it.
func withCORS(next http.HandlerFunc, origins []*regexp.Regexp) http.HandlerFunc {
	if len(origins) == 0 {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" || !slices.ContainsFunc(origins, func(o *regexp.Regexp) bool { return o.MatchString(origin) }) {
			next(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Expose-Headers", corsExposed)
		h.Set("Access-Control-Allow-Credentials", "true")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next(w, r)
	}
}

// withTransportSecurity sets the header Strict-Transport-Security, so that browsers use only HTTPS.
func withTransportSecurity(next http.HandlerFunc, directives []string) http.HandlerFunc {
	if len(directives) == 0 {
		return next
	}
	value := strings.Join(directives, "; ")
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", value)
		next(w, r)
	}
}

// withGoaway closes the connection after some HTTP/2 requests, chosen at random with probability
// chance. The client then opens a connection, perhaps to another server behind a load balancer.
// Requests in flight continue.
func withGoaway(next http.HandlerFunc, chance float64, random func() float64) http.HandlerFunc {
	if chance <= 0 {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if random() < chance {
			leave(w, r)
		}
		next(w, r)
	}
}

// withRetryAfter answers new requests with 429 and Retry-After while the server drains, so that
// clients retry with another server. Health checks and metrics are still served.
func withRetryAfter(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	if !cfg.RetryAfterShutdown || cfg.InFlight == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		watched := slices.ContainsFunc([]string{"/readyz", "/livez", "/healthz", "/metrics"},
			func(p string) bool { return strings.HasPrefix(r.URL.Path, p) })
		if watched || !cfg.InFlight.draining() {
			next(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "5")
		http.Error(w, "The apiserver is shutting down, please try again later.", http.StatusTooManyRequests)
	}
}
