// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/apiserver/store/kv/kvtest"
)

func start(t *testing.T, dir string) *etcd.Store {
	t.Helper()
	s, err := embedded.Start(t.Context(), etcd.Embedded{
		LeaseReuse: 60,
		Dir:        dir, UnsafeNoFsync: true, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reset deletes all keys of a store between tests, which is faster than starting another etcd.
func reset(t *testing.T, s *etcd.Store) {
	t.Helper()
	res, err := s.Range(t.Context(), kv.RangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range res.Items {
		if _, err := s.Delete(t.Context(), it.Key, it.ModRevision); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEmbeddedConformance(t *testing.T) {
	s := start(t, t.TempDir())
	defer closeStore(t, s)
	kvtest.Run(t, func(t *testing.T) kv.Store {
		reset(t, s)
		return s
	})
}

// TestExternalConformance runs the suite over a socket, as for an external etcd.
func TestExternalConformance(t *testing.T) {
	server, url := serve(t)
	defer server.Close()
	s, err := etcd.Dial(etcd.External{Endpoints: []string{url}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	kvtest.Run(t, func(t *testing.T) kv.Store {
		reset(t, s)
		return s
	})
}

// TestGroupIsOneTransaction checks that the writes of all callers of a group get one revision.
func TestGroupIsOneTransaction(t *testing.T) {
	s := start(t, t.TempDir())
	defer closeStore(t, s)
	const callers = etcd.GroupWrites
	// With a fake clock that never advances, no write stops waiting for the others of its group.
	group, ctx := kv.NewGroup(t.Context(), testingclock.NewFakeClock(time.Now()), callers)
	revisions := make([]int64, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			defer group.Leave()
			res, err := s.Put(ctx, fmt.Sprint("/", i), nil, 0, 0)
			if err != nil || !res.OK {
				t.Errorf("Put = %+v, %v", res, err)
			}
			revisions[i] = res.Revision
		})
	}
	all.Wait()
	if slices.Min(revisions) != slices.Max(revisions) {
		t.Errorf("writes of a group have the revisions %v", revisions)
	}
}

func closeStore(t *testing.T, s *etcd.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestEmbeddedRestart(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	res, err := s.Put(t.Context(), "/a", []byte("1"), 0, 0)
	if err != nil || !res.OK {
		t.Fatal(res, err)
	}
	closeStore(t, s)
	s = start(t, dir)
	defer closeStore(t, s)
	it, rev, err := s.Get(t.Context(), "/a")
	if err != nil || it == nil || it.ModRevision != res.Revision || rev != res.Revision {
		t.Errorf("after a restart: %+v at %d, %v", it, rev, err)
	}
}

func TestEmbeddedListensNowhere(t *testing.T) {
	s := start(t, t.TempDir())
	defer closeStore(t, s)
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the machine does not support that address family
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && ownsSocket(t, f[9]) {
				t.Errorf("listens: %s", line)
			}
		}
	}
}

// ownsSocket reports whether this process has the socket with an inode open.
func ownsSocket(t *testing.T, inode string) bool {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

func TestLeasesAreShared(t *testing.T) {
	s := start(t, t.TempDir())
	defer closeStore(t, s)
	clk := testingclock.NewFakeClock(time.Unix(1000, 0))
	get := etcd.Leases(s, clk)
	lease := func(ttl int64) int64 {
		id, err := get(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		return int64(id)
	}
	first := lease(3600)
	clk.Step(50 * time.Second)
	if lease(3600) != first {
		t.Error("a lease is not shared within a minute")
	}
	if lease(600) == first {
		t.Error("different TTLs share a lease")
	}
	clk.Step(11 * time.Second)
	second := lease(3600)
	if second == first {
		t.Error("a lease is shared although it ends too early")
	}
	for range etcd.LeaseKeys {
		lease(3600)
	}
	if lease(3600) == second {
		t.Error("a lease has more than its number of keys")
	}
}

func TestTLSFiles(t *testing.T) {
	_, err := etcd.Dial(etcd.External{Endpoints: []string{"127.0.0.1:1"}, CAFile: "/nowhere",
		Log: slog.New(slog.DiscardHandler), Clock: clock.Real()})
	if err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("missing CA file: %v", err)
	}
}
