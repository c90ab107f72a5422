// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestHeadersOfAnswers checks the headers for CORS and Strict-Transport-Security, and that
// discovery documents contain the external host name.
func TestHeadersOfAnswers(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.HTTP.CORSOrigins = []string{`//example\.com(:|$)`}
		c.HTTP.TransportSecurity = []string{"max-age=10", "preload"}
		c.HTTP.ExternalHostname = "api.example.com"
		c.NotReadySeconds = 7
	}})
	const secure = "max-age=10; preload"
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		method, path, origin, body string
		code                       int
		allowed                    bool
		want                       string // text that the body must contain
	}{
		"no origin":      {"GET", "/api", "", "", 200, false, `"serverAddress":"api.example.com:`},
		"another origin": {"GET", "/version", "https://example.org", "", 200, false, "gitVersion"},
		"origin":         {"GET", "/version", "https://example.com:8443", "", 200, true, "gitVersion"},
		"may it":         {"OPTIONS", "/api/v1/pods", "https://example.com", "", 204, true, ""},
		"may another":    {"OPTIONS", "/api/v1/pods", "https://example.org", "", 405, false, ""},
		"toleration": {"POST", "/api/v1/namespaces/default/pods?dryRun=All", "",
			`{"metadata":{"name":"p"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`,
			201, false, `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":7}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, s.Config.Host+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if tc.origin != "" {
			req.Header.Set("Origin", tc.origin)
		}
		resp, body := testserver.Do(t, client, req)
		origin := ""
		if tc.allowed {
			origin = tc.origin
		}
		h := resp.Header
		if resp.StatusCode != tc.code || h.Get("Access-Control-Allow-Origin") != origin ||
			h.Get("Strict-Transport-Security") != secure || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %s, headers %v; want %d %s", name, resp.StatusCode, body, h, tc.code, tc.want)
		}
	}
}

// TestRequestTimeout checks that a timeout is answered with Kubernetes' Status, whatever form the
// client accepts.
func TestRequestTimeout(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		path = "/api/v1/namespaces/default/configmaps?timeout=1ns"
		want = `{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the ` +
			`allotted timeout","reason":"Timeout","details":{},"code":504}` + "\n"
	)
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", "a/b"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Config.Host+path,
			strings.NewReader(`{"metadata":{"name":"c"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", accept)
		resp, body := testserver.Do(t, client, req)
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusGatewayTimeout ||
			kind != "text/plain; charset=utf-8" || body != want {
			t.Errorf("%s: %d, %s: %s", accept, resp.StatusCode, kind, body)
		}
	}
}
