// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"keelson.dev/keelson/pkg/apiserver/authn/authntest"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// FuzzWebhook: whatever a webhook answers, nobody is let do a thing but by a
// review that says so.
func FuzzWebhook(f *testing.F) {
	var answer atomic.Pointer[[]byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(*answer.Load())
	}))
	f.Cleanup(server.Close)
	file := filepath.Join(f.TempDir(), "hook.kubeconfig")
	writeFile(f, file, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u}]\nclusters: [{name: c, cluster: {server: %q}}]\n", server.URL))
	c, err := Load(Config{Authorization: config.Authorization{Webhook: config.AccessWebhook{ConfigFile: file, Version: "v1"}}, Modes: []string{config.ModeWebhook}})
	if err != nil {
		f.Fatal(err)
	}
	if err := c.Build(map[string]Authorizer{}); err != nil {
		f.Fatal(err)
	}
	review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":%t,"denied":%t,"reason":"x"}}`
	for _, allowed := range []bool{true, false} {
		f.Add([]byte(fmt.Sprintf(review, allowed, false)))
		f.Add([]byte(fmt.Sprintf(review, allowed, true)))
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure"}`))
	f.Add([]byte(`<html>{"status":{"allowed":true}}</html>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer.Store(&body)
		decision, _, _ := c.Authorize(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}, Verb: "get", Resource: "pods", ResourceRequest: true})
		if decision == authorizer.DecisionAllow && !authntest.Says(body, "allowed") {
			t.Errorf("%q lets alice in", body)
		}
	})
}
