// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
)

// TestReadable checks that etcd keeps its data in the format of the release before, if that is
// requested, and returns to its own format.
func TestReadable(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd takes several seconds to change the format")
	}
	dir := t.TempDir()
	for _, step := range []struct{ readable, format string }{{"3.6", "3.6"}, {"3.6", "3.6"}, {"", "3.7"}} {
		s, err := embedded.Start(t.Context(), etcd.Embedded{Dir: dir, UnsafeNoFsync: true, Readable: step.readable,
			Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			status, err := etcd.Client(s).Status(t.Context(), "")
			if err == nil && strings.HasPrefix(status.StorageVersion, step.format) &&
				status.DowngradeInfo.GetEnabled() == (step.readable != "") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("readable %q: %v, %v", step.readable, status, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
