// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// Proxies carry every method, so that a request for a pod that is not there is
// answered by 404, and no other path has HEAD or OPTIONS.
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
