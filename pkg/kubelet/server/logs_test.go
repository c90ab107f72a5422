// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

const logLines = `2026-01-02T03:04:05.000000001Z stdout F one
2026-01-02T03:04:06.000000001Z stderr F two
2026-01-02T03:04:07.000000001Z stdout P thr
2026-01-02T03:04:07.000000002Z stdout F ee
2026-01-02T03:04:08.000000001Z stdout F four
`

func TestContainerLogs(t *testing.T) {
	f := start(t)
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(logLines), 0o600); err != nil {
		t.Fatal(err)
	}
	f.kubelet.log = LogSource{Path: path, Running: func(context.Context) (bool, error) { return false, nil }}
	for name, c := range map[string]struct {
		path string
		code int
		body string
	}{
		"all":                           {"/containerLogs/ns/p/c", 200, "one\ntwo\nthree\nfour\n"},
		"tail":                          {"/containerLogs/ns/p/c?tailLines=1", 200, "four\n"},
		"none":                          {"/containerLogs/ns/p/c?tailLines=0", 200, ""},
		"tail parameter of old clients": {"/containerLogs/ns/p/c?tail=all", 200, "one\ntwo\nthree\nfour\n"},
		"limit":                         {"/containerLogs/ns/p/c?limitBytes=5", 200, "one\nt"},
		"since time":                    {"/containerLogs/ns/p/c?sinceTime=2026-01-02T03:04:08Z", 200, "four\n"},
		"timestamps": {"/containerLogs/ns/p/c?timestamps=true&tailLines=1", 200,
			"2026-01-02T03:04:08.000000001Z four\n"},
		"stdout":                    {"/containerLogs/ns/p/c?stream=Stdout", 200, "one\nthree\nfour\n"},
		"stderr":                    {"/containerLogs/ns/p/c?stream=Stderr", 200, "two\n"},
		"follow an ended container": {"/containerLogs/ns/p/c?follow=true", 200, "one\ntwo\nthree\nfour\n"},
		"previous": {"/containerLogs/ns/p/c?previous=true", 400,
			`previous terminated container "c" in pod "p" not found`},
		"no pod":       {"/containerLogs/ns/q/c", 404, `pod "q" does not exist`},
		"no container": {"/containerLogs/ns/p/d", 404, `container "d" not found in pod "p"`},
		"bad query":    {"/containerLogs/ns/p/c?tailLines=x", 400, `{"message": "Unable to decode query."}`},
		"bad tail":     {"/containerLogs/ns/p/c?tailLines=-1", 422, `{"message": "Invalid request."}`},
		"bad stream":   {"/containerLogs/ns/p/c?stream=Nope", 422, `{"message": "Invalid request."}`},
		"sinceTime and sinceSeconds": {"/containerLogs/ns/p/c?sinceSeconds=1&sinceTime=2026-01-02T03:04:08Z",
			422, `{"message": "Invalid request."}`},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := f.do(t, "operator", "GET", c.path); code != c.code || body != c.body {
				t.Errorf("got %d %q, want %d %q", code, body, c.code, c.body)
			}
		})
	}
}

// TestFollow follows the log of a container across a rotation until the container ends.
func TestFollow(t *testing.T) {
	f := start(t)
	path := filepath.Join(t.TempDir(), "0.log")
	write := func(text string) {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString("2026-01-02T03:04:05.000000001Z stdout F " + text + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var ended atomic.Bool
	waiting := make(chan struct{}, 1)
	f.kubelet.log = LogSource{Path: path, Running: func(context.Context) (bool, error) {
		select {
		case waiting <- struct{}{}:
		default:
		}
		return !ended.Load(), nil
	}}
	write("one")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/containerLogs/ns/p/c?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.token["operator"])
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	expect("one")
	write("two")
	expect("two")
	// The log reader sends to waiting after it has started to watch the directory. From then on it
	// notices the rotation.
	<-waiting
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("three")
	expect("three")
	write("four")
	ended.Store(true)
	expect("four")
	if lines.Scan() {
		t.Errorf("more: %q", lines.Text())
	}
}
