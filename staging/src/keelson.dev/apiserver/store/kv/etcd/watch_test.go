// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/etcd"
)

// TestWatchUnreachable checks that the calls of a watch end with their context while etcd cannot be reached.
func TestWatchUnreachable(t *testing.T) {
	dial := func(url string) *etcd.Store {
		s, err := etcd.Dial(etcd.External{Endpoints: []string{url}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeStore(t, s) })
		return s
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := dial("unix://"+t.TempDir()+"/none").Watch(ctx, "/", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("watch: %v", err)
	}

	server, url := serve(t)
	w, err := dial(url).Watch(t.Context(), "/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	server.Close()
	for err = nil; err == nil; { // the client accepts some requests before it notices the end
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err = w.RequestProgress(ctx)
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("progress: %v", err)
	}
}
