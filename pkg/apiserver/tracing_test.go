// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/daemon/tracetest"
)

// tracingConfig writes a TracingConfiguration that exports spans to a collector.
func tracingConfig(t *testing.T, endpoint string, rate int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: "+
		"%s\nsamplingRatePerMillion: %d\n", endpoint, rate)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTracing checks that requests and their storage calls have spans. Requests of trusted users
// continue the trace in their header, and requests of other users never do.
func TestTracing(t *testing.T) {
	const trusted, other = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"
	for name, tc := range map[string]struct {
		etcd   bool
		rate   int
		linked bool // whether a request of a user who is not trusted starts a new trace
	}{
		"what is asked for": {false, 0, false},
		"all":               {true, 1_000_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			collector := tracetest.Start(t)
			file := tracingConfig(t, collector.Endpoint, tc.rate)
			s := testserver.Start(t,
				testserver.Options{Etcd: tc.etcd, Configure: func(c *config.Config) { c.TracingConfig = file }})
			create := func(c *rest.Config, name, trace string, code int) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
					s.URL+"/api/v1/namespaces/default/configmaps", strings.NewReader(`{"metadata":{"name":"`+name+`"}}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
				client, err := rest.HTTPClientFor(c)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != code {
					t.Fatalf("%s (%v), want %d", resp.Status, err, code)
				}
			}
			create(s.Config, "a", trusted, http.StatusCreated)
			create(s.UserConfig(t, "u"), "b", other, http.StatusForbidden)
			create(s.TokenConfig("nobody's"), "c", other, http.StatusUnauthorized)
			s.Stop(t)

			var request tracetest.Span
			linked := 0
			spans := collector.Spans()
			for _, span := range spans {
				if !strings.Contains(span.Process, "service.name=apiserver") {
					t.Errorf("span %s is of %s", span.Name, span.Process)
				}
				if span.Trace == other {
					t.Errorf("span %s follows a stranger's decision", span.Name)
				}
				if slices.Contains(span.Links, other) {
					linked++
				}
				if span.Trace == trusted && span.Parent == "b7ad6b7169203331" {
					request = span
				}
			}
			if request.Name != "POST /api/v1/namespaces/{:namespace}/configmaps" {
				t.Errorf("request's span %+v", request)
			}
			if tc.linked != (linked == 1) {
				t.Errorf("%d spans refer to the stranger's trace", linked)
			}
			if !slices.ContainsFunc(spans, func(s tracetest.Span) bool {
				return s.Name == "etcd Put" && s.Trace == trusted && s.Parent == request.ID
			}) {
				t.Errorf("spans %+v, want the write below the request", spans)
			}
		})
	}
}

// TestPodTrace checks that the trace of a pod (see package podtrace) has a span for the create of
// the pod, and that this span has a link to the trace of the request.
func TestPodTrace(t *testing.T) {
	const request = "0af7651916cd43dd8448eb211c80319c"
	collector := tracetest.Start(t)
	file := tracingConfig(t, collector.Endpoint, 1_000_000)
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.TracingConfig = file }})
	carry := rest.CopyConfig(s.Config)
	carry.Wrap(func(rt http.RoundTripper) http.RoundTripper { return traced{rt, request} })
	client, err := kubernetes.NewForConfig(carry)
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	no := false
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	created, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Name = "b"
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	s.Stop(t)
	var found []tracetest.Span
	for _, span := range collector.Spans() {
		if span.Name == "apiserver.create" {
			found = append(found, span)
		}
	}
	if len(found) != 1 || found[0].Trace != podtrace.TraceID(created.UID).String() || found[0].Parent == "" ||
		!slices.Equal(found[0].Links, []string{request}) {
		t.Errorf("spans of creates: %+v", found)
	}
}

// traced is a transport whose requests are part of a trace.
type traced struct {
	http.RoundTripper
	trace string
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", "00-"+t.trace+"-b7ad6b7169203331-01")
	return t.RoundTripper.RoundTrip(r)
}

// TestTracingConfig checks that the server does not start with an invalid tracing configuration.
func TestTracingConfig(t *testing.T) {
	key := filepath.Join(testserver.Start(t, testserver.Options{}).Dir, "sa.key")
	for name, tc := range map[string]struct{ text, want string }{
		"another kind": {"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration",
			"TracingConfiguration"},
		"unknown field": {"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nbogus: 1",
			`unknown field "bogus"`},
		"rate": {"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: " +
			"TracingConfiguration\nsamplingRatePerMillion: -1", "sampling rate must be positive"},
		"endpoint": {"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " +
			"http://127.0.0.1:1", "unsupported scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tracing.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.TracingConfig, cfg.ServiceAccountSignKey, cfg.ServiceAccountIssuers = file, key, []string{"https://x"}
			cfg.ServiceAccountKeyFiles = []string{key}
			if _, err := apiserver.New(cfg, apiserver.Deps{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}
