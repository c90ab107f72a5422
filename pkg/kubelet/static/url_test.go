// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"keelson.dev/keelson/pkg/kubelet/source"
)

// TestURL checks that pods of a URL run in the same way as pods of files, and that an invalid
// response changes nothing.
func TestURL(t *testing.T) {
	var body atomic.Value
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Token") != "t" {
			http.Error(w, "who is it?", http.StatusForbidden)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body.Load().(string)))
	}))
	defer server.Close()
	dir := t.TempDir()
	m, pool := New(Config{
		Path: dir, URL: server.URL, Header: http.Header{"Token": {"t"}}, NodeName: "n1", Log: slog.New(slog.DiscardHandler),
	}), newPool()
	m.Start(pool)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(text string) error {
		t.Helper()
		body.Store(text)
		pods, err := m.fetch(t.Context(), client)
		m.serve(pods, err)
		m.apply()
		return err
	}
	if err := ask(manifest); err != nil || pool.images() != "img" {
		t.Fatalf("%v, pool has %q", err, pool.images())
	}
	pod := m.Pods()[0]
	if pod.Annotations[source.AnnotationSource] != source.HTTP || pod.Name != "web-n1" {
		t.Errorf("%s from %s", pod.Name, pod.Annotations[source.AnnotationSource])
	}
	other := strings.Replace(strings.Replace(manifest, "name: web", "name: other", 1), "img", "second", 1)
	for name, answer := range map[string]string{"nothing": "", "no YAML": "{",
		"another kind":         "apiVersion: v1\nkind: Secret\n",
		"a pod that cannot be": strings.Replace(manifest, "image: img", "image: \"\"", 1)} {
		if err := ask(answer); err == nil || pool.images() != "img" || len(pool.removed) != 0 {
			t.Errorf("%s: %v, pool has %q", name, err, pool.images())
		}
	}
	status = http.StatusFound
	if err := ask(manifest); err == nil {
		t.Error("a redirect is an answer")
	}
	status = http.StatusOK
	// If a file contains a pod of the same name, it takes precedence over the pod of the URL.
	write(t, filepath.Join(dir, "web.yaml"), strings.Replace(manifest, "img", "of-file", 1))
	m.read()
	m.apply()
	pool.end()
	m.apply()
	if got := pool.images(); got != "of-file" {
		t.Errorf("pool has %q", got)
	}
	list := "apiVersion: v1\nkind: PodList\nitems:\n- " +
		strings.ReplaceAll(strings.TrimSpace(strings.Replace(other, "apiVersion: v1\nkind: Pod\n", "", 1)),
			"\n", "\n  ") + "\n"
	if err := ask(list); err != nil {
		t.Fatal(err)
	}
	if got := pool.images(); got != "of-file,second" && got != "second,of-file" {
		t.Errorf("pool has %q", got)
	}
	if err := ask("apiVersion: v1\nkind: PodList\nitems: []\n"); err != nil {
		t.Fatal(err)
	}
	pool.end()
	m.apply()
	if got := pool.images(); got != "of-file" {
		t.Errorf("pool has %q", got)
	}
}
