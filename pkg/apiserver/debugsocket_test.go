// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestDebugSocket checks that the debug socket serves profiles and flags and nothing else. It also
// checks that the server serves the log files at /logs/.
func TestDebugSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "debug.sock")
	s := testserver.Start(t,
		testserver.Options{Configure: func(c *config.Config) { c.Debug = config.Debug{Socket: socket, Logs: true} }})
	client := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
	defer client.CloseIdleConnections()
	own, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		client *http.Client
		url    string
		want   int
	}{
		{client, "http://x/debug/pprof/", 200}, {client, "http://x/debug/pprof/cmdline", 200},
		{client, "http://x/debug/flags", 200}, {client, "http://x/debug/flags/v", 406},
		{client, "http://x/metrics", 404}, {client, "http://x/", 404}, {client, "http://x/api", 404},
		{own, s.URL + "/logs/", 200}, {own, s.URL + "/logs/nope", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, body := testserver.Do(t, tc.client, req); resp.StatusCode != tc.want {
			t.Errorf("%s: %d %s, want %d", tc.url, resp.StatusCode, body, tc.want)
		}
	}
}
