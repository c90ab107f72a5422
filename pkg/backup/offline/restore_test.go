// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/keelson/pkg/epoch"
)

// start starts the etcd of an API server with a data directory.
func start(t *testing.T, dir string) *etcd.Store {
	t.Helper()
	s, err := embedded.Start(t.Context(), etcd.Embedded{Dir: dir, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *etcd.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, s *etcd.Store, key, value string, expect int64) int64 {
	t.Helper()
	r, err := s.Put(t.Context(), key, []byte(value), expect, 0)
	if err != nil || !r.OK {
		t.Fatal(key, r, err)
	}
	return r.Revision
}

func snapshotOf(t *testing.T, s *etcd.Store) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Snapshot(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// check checks that a restored store has key a with the value "1" and the revision of its last change, no
// key b, the epoch, and no history before revision.
func check(t *testing.T, dir string, o Options, modified, revision int64) *etcd.Store {
	t.Helper()
	s := start(t, dir)
	item, now, err := s.Get(t.Context(), "/registry/a")
	if err != nil || item == nil || string(item.Value) != "1" || item.ModRevision != modified || now != revision {
		t.Fatalf("a is %v at revision %d, %v; want revisions %d and %d", item, now, err, modified, revision)
	}
	if item, _, err := s.Get(t.Context(), "/registry/b"); err != nil || item != nil {
		t.Errorf("b is %v, %v", item, err)
	}
	item, _, err = s.Get(t.Context(), epoch.Key(o.Prefix))
	if err != nil || item == nil || string(item.Value) != epoch.Format(o.Epoch) {
		t.Errorf("the epoch is %v, %v", item, err)
	}
	for _, old := range []int64{2, revision - 1} {
		if _, err := s.Range(t.Context(), kv.RangeOptions{Prefix: "/", Revision: old}); !errors.Is(err, kv.ErrCompacted) {
			t.Errorf("revision %d: %v", old, err)
		}
	}
	return s
}

// TestRestore restores a store twice from one snapshot. Each time, the restored store has a higher
// revision than any of the stores before, although more was written to them after the snapshot.
func TestRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "first")
	s := start(t, dir)
	modified := put(t, s, "/registry/a", "1", 0)
	source := snapshotOf(t, s)
	before, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	last := put(t, s, "/registry/b", "lost", 0)
	stop(t, s)
	ids := map[string]bool{clusterID(t, dir): true}
	for i, now := range []time.Time{time.Unix(1_796_072_400, 0), time.Unix(1_796_072_401, 0)} {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		o := Options{Prefix: "registry", Epoch: epoch.Next(now)}
		revision, err := Restore(t.Context(), source, dir, o)
		if err != nil {
			t.Fatal(err)
		}
		if revision < last+1000 {
			t.Errorf("the revision %d is not much higher than %d", revision, last)
		}
		s := check(t, dir, o, modified, revision)
		if r, err := s.Put(t.Context(), "/registry/a", []byte("2"), last, 0); err != nil || r.OK {
			t.Errorf("a write with a revision of the lost history: %v, %v", r, err)
		}
		last = put(t, s, "/registry/a", "2", modified)
		for range 10 {
			last = put(t, s, "/registry/a", "3", last)
		}
		stop(t, s)
		if id := clusterID(t, dir); ids[id] {
			t.Errorf("the cluster ID %s is used again", id)
		} else {
			ids[id] = true
		}
		if _, err := os.Stat(dir + ".source"); !os.IsNotExist(err) {
			t.Error(err)
		}
	}
	if after, err := os.ReadFile(source); err != nil || string(after) != string(before) {
		t.Error("the snapshot was changed", err)
	}
	if _, err := Restore(t.Context(), source, dir, Options{Prefix: "registry", Epoch: 1}); err == nil {
		t.Error("a data directory was overwritten")
	}
	if _, err := Restore(t.Context(), dir, t.TempDir(), Options{Prefix: "registry", Epoch: 1}); err == nil {
		t.Error("a directory was accepted as a snapshot")
	}
}

// TestRestoreForSeveral checks that the only member of a restored store has the given name and URL, so that others
// can join, also after an API server's own etcd has used the store.
func TestRestoreForSeveral(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "first"))
	modified := put(t, s, "/registry/a", "1", 0)
	source := snapshotOf(t, s)
	stop(t, s)
	dir := filepath.Join(t.TempDir(), "restored")
	o := Options{Prefix: "registry", Epoch: 1_796_072_400, Name: "m1", Peer: "https://192.0.2.1:2380"}
	revision, err := Restore(t.Context(), source, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, check(t, dir, o, modified, revision))
	config := alone(dir)
	config.ForceNewCluster = false
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	<-server.Server.ReadyNotify()
	members := server.Server.Cluster().Members()
	if len(members) != 1 || !slices.Equal(members[0].PeerURLs, []string{o.Peer}) {
		t.Errorf("members %v", members[0])
	}
}

// clusterID returns the ID of the etcd cluster that a data directory belongs to.
func clusterID(t *testing.T, dir string) string {
	t.Helper()
	server, err := embed.StartEtcd(alone(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	<-server.Server.ReadyNotify()
	return server.Server.Cluster().ID().String()
}

func TestNextRevision(t *testing.T) {
	const now = 1_796_072_400
	for _, tc := range []struct{ last, epoch, want int64 }{
		{5, now, now * perEpoch},
		{5, 1, 5 + minBump}, // the clock is not set
		{5 + minBump, 2, 5 + 2*minBump},
		{now*perEpoch + 1000, now + 1, (now + 1) * perEpoch},      // restored again after a second
		{now*perEpoch + 1000, 7, now*perEpoch + 1000 + minBump},   // the clock was set, but not any more
		{now*perEpoch + 1000, now, now*perEpoch + 1000 + minBump}, // never the same revision again
	} {
		if got := nextRevision(tc.last, tc.epoch); got != tc.want {
			t.Errorf("after %d with epoch %d: %d, want %d", tc.last, tc.epoch, got, tc.want)
		}
	}
}

// TestSurvivor takes a snapshot from the data directory of a member that was killed. It has what was
// acknowledged, and the directory is not changed.
func TestSurvivor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "member")
	s := start(t, dir)
	modified := put(t, s, "/registry/a", "1", 0)
	crashed := filepath.Join(t.TempDir(), "crashed") // as the disk is after a power failure
	if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	put(t, s, "/registry/b", "lost", 0)
	stop(t, s)
	before := files(t, crashed)
	source := filepath.Join(t.TempDir(), "snapshot")
	if err := Survivor(t.Context(), crashed, source); err != nil {
		t.Fatal(err)
	}
	if after := files(t, crashed); after != before {
		t.Errorf("the directory was changed from\n%s\nto\n%s", before, after)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	o := Options{Prefix: "registry", Epoch: 1_796_072_400}
	revision, err := Restore(t.Context(), source, restored, o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, check(t, restored, o, modified, revision))
	if err := Survivor(t.Context(), t.TempDir(), source); err == nil {
		t.Error("an empty directory was accepted")
	}
}

// files returns the hash of each file below a directory.
func files(t *testing.T, dir string) (out string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out += fmt.Sprintf("%s %x\n", path, sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
