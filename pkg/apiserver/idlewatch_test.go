// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package apiserver_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/apiserver/http2server/http2test"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestStackOfIdleWatches checks that the goroutine of a watch that waits has a stack of 8 KiB. It
// has 16 KiB if filters and handlers keep more than 3.2 KB of the stack while the watch waits: a
// garbage collection halves a stack only if less than a quarter is used. The race detector enlarges
// stacks, so the test does not run with it.
func TestStackOfIdleWatches(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(`token,admin,1,"system:masters"`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.TokenAuthFile = tokens }})
	client := http2test.Dial(t, strings.TrimPrefix(s.URL, "https://"), 1<<20)
	before := stacks()
	const watches = 200
	for i := range watches {
		stream := uint32(2*i + 1) //nolint:gosec // a small number
		client.Must(client.Begin(stream, "GET", "/api/v1/namespaces/default/configmaps?watch=1", true,
			hpack.HeaderField{Name: "authorization", Value: "Bearer token"}))
		answered := client.Until(func(f http2.Frame) bool {
			h, ok := f.(*http2.HeadersFrame)
			return ok && h.StreamID == stream && !h.StreamEnded()
		})
		if answered == nil {
			t.Fatal("the server closed the connection")
		}
	}
	if each := (stacks() - before) / watches; each > 10<<10 {
		t.Errorf("a watch that waits has a stack of %d bytes", each)
	}
}

// stacks returns the size of all stacks, in bytes, after garbage collections have made them smaller.
func stacks() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.StackInuse) //nolint:gosec // a small number
}
