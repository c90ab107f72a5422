// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestTerminations checks that requests that are rejected or time out are counted, and that
// requests that succeed are not.
func TestTerminations(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Metrics: m, MaxReadsInFlight: 1, RequestTimeout: time.Hour}
	send := func(h http.Handler, url string) {
		r := httptest.NewRequest(http.MethodGet, url, http.NoBody)
		info, err := Resolver().NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithRequestInfo(r.Context(), info)))
	}
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	send(withDeadline(slow, cfg), "/api/v1/namespaces/a/pods?timeout=1ms")
	send(withDeadline(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), cfg), "/api/v1/pods")
	var full http.Handler
	full = withMaxInFlight(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		send(full, "/api/v1/nodes/n") // the outer request has the only slot
	}), cfg)
	send(full, "/api/v1/nodes")
	for labels, want := range map[[3]string]float64{
		{"LIST", "namespace", "504"}: 1, {"LIST", "cluster", "504"}: 0, {"GET", "resource", "429"}: 1,
	} {
		c := m.terminated.WithLabelValues(labels[0], "", "", "", "", labels[1], "apiserver", labels[2])
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%v is %v, want %v", labels, got, want)
		}
	}
	if got := testutil.ToFloat64(m.rejected.WithLabelValues("readOnly")); got != 1 {
		t.Errorf("%v requests were refused, want 1", got)
	}
}

// TestAborts checks that a request whose answer is broken off is counted, without the name of its
// resource.
func TestAborts(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h := withRecovery(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		Config{Metrics: m})
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // it must be passed on as it is
				t.Errorf("the server gets the panic %v, want http.ErrAbortHandler", p)
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/pods", http.NoBody))
	}()
	if got := testutil.ToFloat64(m.aborted.WithLabelValues("LIST", "", "", "", "", "namespace")); got != 1 {
		t.Errorf("%v aborts were counted, want 1", got)
	}
}

// TestFilterDurations checks that the duration of a filter is the time until it passes a request
// on, that refused requests count only for authentication, and that measuring allocates no memory.
func TestFilterDurations(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	cfg := Config{
		Metrics: m, Clock: clk, Log: slog.New(slog.DiscardHandler),
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			clk.Step(2 * time.Second)
			return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, r.Header.Get("Authorization") != "", nil
		}),
		Authorizer: decider(func() authorizer.Decision {
			clk.Step(3 * time.Second)
			return authorizer.DecisionAllow
		}),
		WriteError: func(http.ResponseWriter, *http.Request, error) {},
	}
	served := 0
	h := withAuthorization(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		clk.Step(time.Hour)
	}), cfg)
	h = withRequestInfo(withAuthentication(h, cfg), cfg)
	for _, token := range []string{"", "token"} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if served != 1 {
		t.Fatalf("%d requests were served, want 1", served)
	}
	for f, want := range map[filter]struct {
		count uint64
		sum   float64
	}{authenticationFilter: {2, 4}, authorizationFilter: {1, 3}, fairnessFilter: {0, 0}} {
		got := &dto.Metric{}
		if err := m.durations[f].(prometheus.Metric).Write(got); err != nil {
			t.Fatal(err)
		}
		if h := got.GetHistogram(); h.GetSampleCount() != want.count || h.GetSampleSum() != want.sum {
			t.Errorf("%s: got %v, want %+v", f, h, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { cfg.end(fairnessFilter, cfg.begin()) }); n > 0 {
		t.Errorf("measuring a filter allocates memory %v times", n)
	}
}

// decider is an authorizer that gives the same decision for all requests.
type decider func() authorizer.Decision

func (d decider) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return d(), "", nil
}
