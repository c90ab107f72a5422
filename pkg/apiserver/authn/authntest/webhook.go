// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authntest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// Webhook runs a webhook until the test ends, and returns its kubeconfig. It answers each call with
// the current value of answer, which must be set before the first call.
func Webhook(t testing.TB) (kubeconfig string, answer *atomic.Pointer[[]byte]) {
	t.Helper()
	answer = new(atomic.Pointer[[]byte])
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(*answer.Load())
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "webhook.kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: "+
		"{cluster: c, user: u}}]\nusers: [{name: u}]\nclusters: [{name: c, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, answer
}
