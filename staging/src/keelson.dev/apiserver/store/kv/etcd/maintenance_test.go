// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
)

// TestMaintenance fills an etcd until it raises its alarm, and makes it accept writes again. The etcd is
// embedded, or reached over a socket.
func TestMaintenance(t *testing.T) {
	const quota = 8 << 20
	t.Run("embedded", func(t *testing.T) {
		s, err := embedded.Start(t.Context(), etcd.Embedded{Dir: t.TempDir(), QuotaBytes: quota, UnsafeNoFsync: true,
			Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer closeStore(t, s)
		testMaintenance(t, s, quota)
	})
	t.Run("external", func(t *testing.T) {
		server, url := serve(t)
		defer server.Close()
		s, err := etcd.Dial(etcd.External{Endpoints: []string{url}, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer closeStore(t, s)
		member := onlyMember(t, s)
		if member.Quota != etcd.DefaultQuota || member.Size == 0 || !member.Leader || member.Name != "keelson" {
			t.Errorf("member: %+v", member)
		}
		if err := s.Defragment(t.Context(), member); err != nil {
			t.Error(err)
		}
	})
}

// onlyMember returns the only member of a store's etcd.
func onlyMember(t *testing.T, s *etcd.Store) etcd.Member {
	t.Helper()
	members, err := s.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].Err != nil {
		t.Fatalf("members: %+v, %v", members, err)
	}
	return members[0]
}

func testMaintenance(t *testing.T, s *etcd.Store, quota int64) {
	var err error
	var revisions []int64
	for err == nil {
		var revision int64
		revision, err = write(t, s, len(revisions))
		revisions = append(revisions, revision)
	}
	full := onlyMember(t, s)
	if !etcd.IsNoSpace(err) || !full.NoSpace || full.Quota != quota || full.Size < quota {
		t.Fatalf("after too many writes: %v, %+v", err, full)
	}
	for i, revision := range revisions[:len(revisions)-1] {
		if res, err := s.Delete(t.Context(), fmt.Sprint("/", i), revision); err != nil || !res.OK {
			t.Fatal(res, err)
		}
	}
	if err := s.CompactNow(t.Context(), onlyMember(t, s).Revision); err != nil {
		t.Fatal(err)
	}
	if err := s.Defragment(t.Context(), onlyMember(t, s)); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t, s, -1); !etcd.IsNoSpace(err) {
		t.Error("a write with the alarm: ", err)
	}
	if err := s.Disarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := onlyMember(t, s); m.NoSpace || m.Size >= quota/2 || m.InUse > m.Size {
		t.Errorf("afterwards: %+v", m)
	}
	if _, err := write(t, s, -1); err != nil {
		t.Error("a write after the alarm: ", err)
	}
}

// write writes a new key with a large value, and returns its revision.
func write(t *testing.T, s *etcd.Store, i int) (int64, error) {
	t.Helper()
	res, err := s.Put(t.Context(), fmt.Sprint("/", i), make([]byte, 1<<20), 0, 0)
	return res.Revision, err
}

// server is a member of an etcd cluster.
type server struct {
	*embed.Etcd
	stop func() // may be called more than once
}

// serveCluster starts an etcd cluster of n members that listen on Unix sockets, and returns the members
// and the URL of the first.
func serveCluster(t *testing.T, n int) ([]server, string) {
	t.Helper()
	t.Chdir(t.TempDir()) // of the sockets
	var initial []string
	socket := func(kind string, i int) []url.URL {
		return []url.URL{{Scheme: "unix", Host: fmt.Sprintf("%s%d:1", kind, i)}}
	}
	for i := range n {
		initial = append(initial, fmt.Sprintf("m%d=%s", i, socket("peer", i)[0].String()))
	}
	members := make([]server, n)
	for i := range n {
		cfg := embedded.Config(etcd.Embedded{Dir: t.TempDir(), UnsafeNoFsync: true, Log: slog.New(slog.DiscardHandler)})
		cfg.Name, cfg.InitialCluster = fmt.Sprint("m", i), strings.Join(initial, ",")
		cfg.ListenClientUrls, cfg.ListenPeerUrls = socket("client", i), socket("peer", i)
		cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
		started, err := embed.StartEtcd(cfg)
		if err != nil {
			t.Fatal(err)
		}
		members[i] = server{started, sync.OnceFunc(started.Close)}
		t.Cleanup(members[i].stop)
	}
	for _, m := range members {
		<-m.Server.ReadyNotify()
	}
	return members, socket("client", 0)[0].String()
}

// TestReadEndpoints checks that an endpoint that accepts connections, but does not answer, does not keep
// the store from reading another one.
func TestReadEndpoints(t *testing.T) {
	_, address := serveCluster(t, 1)
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "silent:1")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, err := etcd.Dial(etcd.External{Endpoints: []string{address}, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	if got := etcd.Answers(t.Context(), s, "unix://silent:1", address); !slices.Equal(got, []bool{false, true}) {
		t.Errorf("answers: %v", got)
	}
}

// TestMembersOfCluster checks that a store that knows the address of one member reads the states of all
// members, also if one of them is down, and can defragment each.
func TestMembersOfCluster(t *testing.T) {
	servers, address := serveCluster(t, 3)
	s, err := etcd.Dial(etcd.External{Endpoints: []string{address}, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	members, err := s.Members(t.Context())
	if err != nil || len(members) != len(servers) {
		t.Fatal(members, err)
	}
	leaders := 0
	for i, m := range members {
		if m.Leader {
			leaders++
		}
		if m.Err != nil || m.Quota != etcd.DefaultQuota || i > 0 && m.ID <= members[i-1].ID {
			t.Errorf("member %d: %+v", i, m)
		}
		if err := s.Defragment(t.Context(), m); err != nil {
			t.Errorf("defragment %s: %v", m.Name, err)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
	down := servers[1].Server.MemberID()
	servers[1].stop()
	if members, err = s.Members(t.Context()); err != nil || len(members) != len(servers) {
		t.Fatal(members, err)
	}
	for _, m := range members {
		if (m.Err != nil) != (m.ID == uint64(down)) {
			t.Errorf("after a member has stopped: %+v", m)
		}
	}
}
