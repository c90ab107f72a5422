// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"cmp"
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

	"keelson.dev/apiserver/store/kv/etcd/embedded"
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
		opts   testserver.Options
		rate   int
		linked bool // whether a request of a user who is not trusted starts a new trace
	}{
		"what is asked for": {testserver.Options{}, 0, false},
		"all":               {testserver.Options{Etcd: embedded.Start}, 1_000_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			collector := tracetest.Start(t)
			file := tracingConfig(t, collector.Endpoint, tc.rate)
			tc.opts.Configure = func(c *config.Config) { c.TracingConfig = file }
			s := testserver.Start(t, tc.opts)
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
				return s.Name == "etcdserverpb.KV/Txn" && s.Trace == trusted
			}) {
				t.Errorf("spans %+v, want the write in the trace of the request", spans)
			}
		})
	}
}

// TestRequestSpans checks the spans of requests against testdata/spans.txt: names, parents and
// events. Those of Kubernetes that are missing there are in docs/explanation/differences.md.
func TestRequestSpans(t *testing.T) {
	const maps = "/api/v1/namespaces/default/configmaps"
	collector := tracetest.Start(t)
	file := tracingConfig(t, collector.Endpoint, 0)
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.TracingConfig = file }})
	requests := []struct{ name, method, path, contentType, body string }{
		{"create", "POST", maps, "application/json", `{"metadata":{"name":"a"}}`},
		{"create one that exists", "POST", maps, "application/json", `{"metadata":{"name":"a"}}`},
		{"get", "GET", maps + "/a", "", ""},
		{"get from cache", "GET", maps + "/a?resourceVersion=0", "", ""},
		{"get one that does not exist", "GET", maps + "/b", "", ""},
		{"list", "GET", maps, "", ""},
		{"watch list", "GET", maps + "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true" +
			"&resourceVersionMatch=NotOlderThan&timeoutSeconds=1", "", ""},
		{"update", "PUT", maps + "/a", "application/json", `{"metadata":{"name":"a"},"data":{"a":"b"}}`},
		{"patch", "PATCH", maps + "/a", "application/merge-patch+json", `{"data":{"a":"c"}}`},
		{"get scale", "GET", "/apis/apps/v1/namespaces/default/deployments/d/scale?resourceVersion=0", "", ""},
		{"review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json",
			`{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`},
		{"delete", "DELETE", maps + "/a", "application/json", `{"gracePeriodSeconds":0}`},
		{"delete all", "DELETE", maps, "", ""},
	}
	for i, r := range requests {
		client := rest.CopyConfig(s.Config)
		client.Wrap(func(rt http.RoundTripper) http.RoundTripper { return traced{rt, traceID(i)} })
		do(t, client, r.method, r.path, r.contentType, r.body)
	}
	s.Stop(t)
	var have strings.Builder
	spans := collector.Spans()
	for i, r := range requests {
		fmt.Fprintf(&have, "# %s\n", r.name)
		writeSpans(&have, spans, traceID(i), "b7ad6b7169203331", "")
	}
	want, err := os.ReadFile("testdata/spans.txt")
	if err != nil {
		t.Fatal(err)
	}
	if have.String() != string(want) {
		t.Errorf("spans:\n%s\nwant:\n%s", have.String(), want)
	}
	checkAttributes(t, spans)
}

// checkAttributes checks attributes of the spans of TestRequestSpans.
func checkAttributes(t *testing.T, spans []tracetest.Span) {
	t.Helper()
	const maps, encoder = "/api/v1/namespaces/default/configmaps", `{"encodeGV":"v1","encoder":"%s","name":"versioning"}`
	for _, want := range []struct {
		request    int
		span       string
		attributes map[string]string
	}{
		{0, "Create", map[string]string{
			"accept": "application/vnd.kubernetes.protobuf", "client": "127.0.0.1", "protocol": "HTTP/2.0", "url": maps,
			"user-agent": "test", "resource": "configmaps", "namespace": "default", "verb": "POST", "scope": "resource",
		}},
		{0, "Create etcd3", map[string]string{"key": "/configmaps/default/a", "type": "*core.ConfigMap",
			"group": "", "resource": "configmaps"}},
		{0, "SerializeObject", map[string]string{"method": "POST", "protocol": "HTTP/2.0", "url": maps,
			"mediaType": "application/vnd.kubernetes.protobuf", "encoder": fmt.Sprintf(encoder, "protobuf")}},
		{3, "cacher.Get", map[string]string{"key": "/configmaps/default/a", "resource-version": "0"}},
		{5, "cacher.GetList", map[string]string{"type": "configmaps"}},
		{6, "cacher.Watch", map[string]string{"type": "configmaps"}},
		{6, "WatchServer.HandleHTTP", map[string]string{
			"mediaType": "application/vnd.kubernetes.protobuf;stream=watch", "encoder": fmt.Sprintf(encoder, "raw-protobuf")}},
		{7, "GuaranteedUpdate etcd3", map[string]string{"key": "/configmaps/default/a", "type": "*core.ConfigMap"}},
	} {
		i := slices.IndexFunc(spans, func(s tracetest.Span) bool {
			return s.Trace == traceID(want.request) && s.Name == want.span
		})
		if i < 0 {
			t.Errorf("%s is missing", want.span)
			continue
		}
		have := spans[i].Attributes
		if have["audit-id"] == "" {
			t.Errorf("%s has no audit ID", want.span)
		}
		for key, value := range want.attributes {
			if have[key] != value {
				t.Errorf("%s: %s is %q, want %q", want.span, key, have[key], value)
			}
		}
	}
}

// traceID returns the ID of the trace of a test's request.
func traceID(request int) string { return fmt.Sprintf("%032x", request+1) }

// do makes a request and reads the whole answer.
func do(t *testing.T, c *rest.Config, method, path, contentType, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	req.Header.Set("User-Agent", "test")
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
}

// writeSpans writes the names and events of the spans of a trace that are below the span parent, in
// the order of their start.
func writeSpans(to *strings.Builder, spans []tracetest.Span, trace, parent, indent string) {
	slices.SortStableFunc(spans, func(a, b tracetest.Span) int { return cmp.Compare(a.Start, b.Start) })
	for _, s := range spans {
		if s.Trace != trace || s.Parent != parent {
			continue
		}
		fmt.Fprintf(to, "%s%s\n", indent, s.Name)
		for _, e := range s.Events {
			fmt.Fprintf(to, "%s    - %s\n", indent, e)
		}
		writeSpans(to, spans, trace, s.ID, indent+"  ")
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
	dir := testserver.Start(t, testserver.Options{}).Dir
	key := filepath.Join(dir, "sa.key")
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
			cfg.TLSCertFile, cfg.TLSKeyFile = filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
			if _, err := apiserver.New(cfg, apiserver.Deps{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}
