// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

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
	for name, answer := range map[string]string{"no YAML": "{",
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
	// An empty list has no pods. The same is true for an empty response, although it is an error.
	for answer, valid := range map[string]bool{"apiVersion: v1\nkind: PodList\nitems: []\n": true, "": false} {
		if err := ask(list); err != nil || !strings.Contains(pool.images(), "second") {
			t.Fatalf("%v, pool has %q", err, pool.images())
		}
		if err := ask(answer); (err == nil) != valid {
			t.Errorf("%q: %v", answer, err)
		}
		pool.end()
		m.apply()
		if got := pool.images(); got != "of-file" {
			t.Errorf("%q: pool has %q", answer, got)
		}
	}
}

// TestSynced checks that the Manager is synced once the pool has the pods of all sources, and that
// it deletes no mirror pod of a source before it has read the source.
func TestSynced(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, manifest)
	pod, err := decode([]byte(manifest), origin{source.HTTP, "http://x"}, "n1")
	if err != nil {
		t.Fatal(err)
	}
	mirror := pod.DeepCopy()
	mirror.Annotations[source.AnnotationMirror] = pod.Annotations[source.AnnotationHash]
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		path, url string
		pods      map[string]*v1.Pod // of the URL
		err       error              // of the URL
		synced    [2]bool            // after the start, and after the URL was asked
	}{
		"no source":          {synced: [2]bool{true, true}},
		"files":              {path: dir, synced: [2]bool{true, true}},
		"one file":           {path: file, synced: [2]bool{true, true}},
		"no files":           {path: filepath.Join(dir, "absent"), synced: [2]bool{true, true}},
		"unreadable files":   {path: filepath.Join(file, "x"), synced: [2]bool{false, false}},
		"URL":                {url: "http://x", pods: map[string]*v1.Pod{key(pod): pod}, synced: [2]bool{false, true}},
		"URL fails":          {url: "http://x", err: failed, synced: [2]bool{false, false}},
		"URL without data":   {url: "http://x", pods: map[string]*v1.Pod{}, err: failed, synced: [2]bool{false, true}},
		"files, URL fails":   {path: dir, url: "http://x", err: failed, synced: [2]bool{false, false}},
		"files and URL":      {path: dir, url: "http://x", pods: map[string]*v1.Pod{}, synced: [2]bool{false, true}},
		"only URL available": {path: filepath.Join(file, "x"), url: "http://x", pods: map[string]*v1.Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(Config{Path: c.path, URL: c.url, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
			pool := newPool()
			other := mirror.DeepCopy()
			other.Name = "other"
			check := func(synced bool) {
				t.Helper()
				if got := m.Synced(); got != synced {
					t.Errorf("synced %t, want %t", got, synced)
				}
				if got := m.isCurrent(other); got == synced {
					t.Errorf("mirror pod of an unknown pod is kept: %t, want %t", got, !synced)
				}
			}
			m.Start(pool)
			check(c.synced[0])
			if c.url != "" {
				m.serve(c.pods, c.err)
			}
			if m.Synced() != c.synced[0] {
				t.Error("synced before the pool has the pods")
			}
			m.apply()
			check(c.synced[1])
			if c.pods[key(pod)] != nil && (pool.images() != "img" || !m.isCurrent(mirror)) {
				t.Errorf("pool has %q, mirror pod is current: %t", pool.images(), m.isCurrent(mirror))
			}
		})
	}
}

// TestInvalidFile checks that the pod of a path that is a file stays if the file becomes invalid, and
// that an invalid file is not taken for a file without pods at the start.
func TestInvalidFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	m, pool := New(Config{Path: file, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}), newPool()
	write(t, file, manifest[:len(manifest)/2])
	if m.Start(pool); m.Synced() || pool.images() != "" {
		t.Errorf("with half of a file: synced %t, pool has %q", m.Synced(), pool.images())
	}
	for _, text := range []string{manifest, "{", ""} {
		write(t, file, text)
		m.read()
		m.apply()
		if !m.Synced() || pool.images() != "img" || len(pool.removed) > 0 {
			t.Errorf("with %q: synced %t, pool has %q, %d removed", text, m.Synced(), pool.images(), len(pool.removed))
		}
	}
}
