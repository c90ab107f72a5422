// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestMethodsOfProxies checks that only proxies accept every method. A request for a missing pod is
// answered with 404. Other paths do not accept HEAD and OPTIONS.
func TestMethodsOfProxies(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{http.MethodOptions, "/api/v1/namespaces/default/pods/none/proxy/x", http.StatusNotFound},
		{http.MethodHead, "/api/v1/namespaces/default/services/none/proxy", http.StatusNotFound},
		{http.MethodOptions, "/api/v1/namespaces/default/pods/none/exec", http.StatusMethodNotAllowed},
		{http.MethodHead, "/api/v1/namespaces/default/pods", http.StatusMethodNotAllowed},
		{http.MethodHead, "/api", http.StatusMethodNotAllowed},
		{http.MethodPost, "/api/v1", http.StatusMethodNotAllowed},
		{http.MethodPost, "/apis", http.StatusOK},
		{http.MethodHead, "/apis/apps", http.StatusOK},
		{http.MethodPut, "/apis/apps/v1", http.StatusMethodNotAllowed},
		{http.MethodPost, "/apis/apps/v9", http.StatusNotFound},
		{http.MethodPost, "/apis/bogus", http.StatusNotFound},
		{http.MethodPost, "/version", http.StatusMethodNotAllowed},
		{http.MethodGet, "/version/", http.StatusOK},
		{http.MethodGet, "/healthz/", http.StatusNotFound},
		{http.MethodGet, "/metrics/slis", http.StatusOK},
		{http.MethodGet, "/statusz", http.StatusOK},
		{http.MethodGet, "/flagz", http.StatusOK},
		{http.MethodGet, "/openapi/v2/", http.StatusNotFound},
		{http.MethodGet, "/openapi/v3/bogus", http.StatusNotFound},
		{http.MethodGet, "/api/v1/watch", http.StatusInternalServerError},
		{http.MethodGet, "/api/v1/watch/configmaps/c", http.StatusNotFound},
		{http.MethodPatch, "/api/v1/namespaces/default/pods//status", http.StatusUnsupportedMediaType},
		{http.MethodPost, "/api/v1/namespaces/default/pods/none/eviction", http.StatusBadRequest},
	} {
		t.Run(tc.method+tc.path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, s.Config.Host+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("%d, want %d", resp.StatusCode, tc.want)
			}
		})
	}
}
