// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// cell is an etcd cluster whose members run in this process.
type cell struct {
	*testing.T
	files Files
}

func newCell(t *testing.T) *cell {
	t.Helper()
	dir := t.TempDir()
	base := filepath.Join(dir, "ca")
	authority, err := pki.OpenAuthority(base, "etcd-ca", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{T: t, files: Files{Authority: base + ".crt", Certificate: filepath.Join(dir, "m.crt"),
		Key: filepath.Join(dir, "m.key")}}
	leaf := pki.Leaf{Name: "etcd", Hosts: []string{"127.0.0.1"}, Client: true}
	if err := authority.IssueTo(c.files.Certificate, c.files.Key, leaf, clock.Real()); err != nil {
		t.Fatal(err)
	}
	return c
}

// freeURL returns a URL at which nothing listens.
func (c *cell) freeURL() url.URL {
	c.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "https", Host: l.Addr().String()}
}

// start starts a member. initial is the list of members that it joins; if it is empty, the member is the
// first one. It does not wait until the member is ready. stop may be called several times.
func (c *cell) start(name string, peer url.URL, initial ...string) (m *embed.Etcd, client string, stop func()) {
	c.Helper()
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = name, c.TempDir()
	clients := c.freeURL()
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	cfg.InitialCluster = name + "=" + peer.String()
	if len(initial) > 0 {
		cfg.InitialCluster, cfg.ClusterState = strings.Join(initial, ","), embed.ClusterStateFlagExisting
	}
	cfg.PeerTLSInfo = transport.TLSInfo{CertFile: c.files.Certificate, KeyFile: c.files.Key,
		TrustedCAFile: c.files.Authority, ClientCertAuth: true}
	cfg.ClientTLSInfo = cfg.PeerTLSInfo
	cfg.UnsafeNoFsync, cfg.TickMs, cfg.ElectionMs = true, 20, 200
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	m, err := embed.StartEtcd(cfg)
	if err != nil {
		c.Fatal(err)
	}
	stop = once(m.Close)
	c.Cleanup(stop)
	return m, clients.String(), stop
}

// once returns a function that calls f once.
func once(f func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			f()
		}
	}
}

func (c *cell) connect(urls ...string) *Client {
	c.Helper()
	client, err := Connect(c.files, urls...)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = client.Close() })
	return client
}

// eventually calls f until it returns nil.
func (c *cell) eventually(what string, f func() error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("%s: %v", what, err)
		case <-clock.Real().After(20 * time.Millisecond):
		}
	}
}

// TestMembers adds members to an etcd of one member whose peer URL was not known, as that of a single
// control plane, replaces one that has lost its data, and removes one.
func TestMembers(t *testing.T) {
	c := newCell(t)
	peers := []url.URL{c.freeURL(), c.freeURL(), c.freeURL()}
	first, url, _ := c.start("old", peers[0])
	<-first.Server.ReadyNotify()
	client := c.connect(url)
	list, err := client.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "old" || list[0].Learner || list[0].Clients[0] != url {
		t.Fatal(list, err)
	}
	if err := client.SetPeer(t.Context(), list[0].ID, peers[0].String()); err != nil {
		t.Fatal(err)
	}
	if err := client.Status(t.Context(), list[0]); err != nil {
		t.Error(err)
	}

	if list, err = client.Replace(t.Context(), "m2", peers[1].String()); err != nil {
		t.Fatal(err)
	}
	own, ok := WithPeer(list, peers[1].String())
	if !ok || !own.Learner || own.Name != "" || len(Voters(list)) != 1 {
		t.Fatalf("members %+v", list)
	}
	if err := client.Promote(t.Context(), own.ID); !errors.Is(err, ErrNotReady) {
		t.Errorf("promotion of a member that has not started: %v", err)
	}
	if err := client.Status(t.Context(), own); !errors.Is(err, errNotStarted) {
		t.Errorf("status of a member that has not started: %v", err)
	}
	_, err = client.Replace(t.Context(), "m3", peers[2].String())
	if !errors.Is(err, ErrLearner) || !strings.HasSuffix(err.Error(), "ctl node remove --force 127.0.0.1") {
		t.Errorf("a learner is in the way: %v", err)
	}
	// An attempt that was interrupted is repeated. Within a second, the ID of the new member would be that
	// of the old one.
	c.eventually("replace a learner", func() error {
		list, err = client.Replace(t.Context(), "m2", peers[1].String())
		return err
	})
	if len(list) != 2 {
		t.Errorf("members %+v", list)
	}
	_, _, stop := c.start("m2", peers[1], InitialCluster(list, "m2", peers[1].String())...)
	own, _ = WithPeer(list, peers[1].String())
	c.eventually("promote", func() error { return client.Promote(t.Context(), own.ID) })
	if err := client.Promote(t.Context(), own.ID); err != nil {
		t.Errorf("promote again: %v", err)
	}

	third := c.add(client, "m3", peers[2])
	// Another machine must not take the name of one that runs.
	_, err = client.Replace(t.Context(), "m3", c.freeURLString())
	if !errors.Is(err, ErrNameInUse) {
		t.Errorf("a name that is in use: %v", err)
	}
	c.eventually("remove a member that does not exist", func() error { return client.Remove(t.Context(), 12345) })
	stop() // and its data is lost
	before, _ := WithPeer(list, peers[1].String())
	c.eventually("replace", func() error {
		list, err = client.Replace(t.Context(), "m2", peers[1].String())
		return err
	})
	if m, ok := WithPeer(list, peers[1].String()); !ok || m.ID == before.ID || len(list) != 3 {
		t.Errorf("members after the replacement: %+v", list)
	}
	if err := client.Remove(t.Context(), third.ID); err != nil {
		t.Error(err)
	}
}

func (c *cell) freeURLString() string {
	u := c.freeURL()
	return u.String()
}

// add adds a member that runs, and returns it.
func (c *cell) add(client *Client, name string, peer url.URL) Member {
	c.Helper()
	var list []Member
	c.eventually("add "+name, func() (err error) {
		list, err = client.Replace(c.Context(), name, peer.String())
		return err
	})
	c.start(name, peer, InitialCluster(list, name, peer.String())...)
	own, _ := WithPeer(list, peer.String())
	c.eventually("promote "+name, func() error {
		if err := client.Promote(c.Context(), own.ID); err != nil {
			return err
		}
		list, err := client.List(c.Context())
		if own, _ = WithPeer(list, peer.String()); err == nil && own.Name != name {
			err = fmt.Errorf("name %q", own.Name)
		}
		return err
	})
	return own
}

// TestTrust checks that a server with a certificate of another authority is not asked.
func TestTrust(t *testing.T) {
	c, stranger := newCell(t), newCell(t)
	first, url, _ := c.start("m1", c.freeURL())
	<-first.Server.ReadyNotify()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if list, err := stranger.connect(url).List(ctx); err == nil {
		t.Errorf("members %v", list)
	}
	if _, err := Connect(Files{Authority: filepath.Join(t.TempDir(), "none")}, url); err == nil {
		t.Error("no error without files")
	}
}

func TestRules(t *testing.T) {
	list := []Member{
		{ID: 1, Name: "m1", Peers: []string{"https://192.0.2.1:2380"}},
		{ID: 2, Name: "m2", Peers: []string{"https://192.0.2.2:2380"}, Learner: true},
		{ID: 10, Peers: []string{"https://192.0.2.3:2380"}},
	}
	ids := func(list []Member) (out []uint64) {
		for _, m := range list {
			out = append(out, m.ID)
		}
		return out
	}
	for name, tc := range map[string]struct {
		got  []Member
		want []uint64
	}{
		"stale by name":     {Stale(list, "m1", "https://192.0.2.9:2380"), []uint64{1}},
		"stale by URL":      {Stale(list, "m9", "https://192.0.2.3:2380"), []uint64{10}},
		"stale, by both":    {Stale(list, "m1", "https://192.0.2.2:2380"), []uint64{1, 2}},
		"none is stale":     {Stale(list, "m9", "https://192.0.2.9:2380"), nil},
		"voters":            {Voters(list), []uint64{1, 10}},
		"without":           {Without(list, 2), []uint64{1, 10}},
		"without a missing": {Without(list, 3), []uint64{1, 2, 10}},
	} {
		if got := ids(tc.got); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	want := []string{"m1=https://192.0.2.1:2380", "m9=https://192.0.2.2:2380", "a=https://192.0.2.3:2380"}
	if got := InitialCluster(list, "m9", "https://192.0.2.2:2380"); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3} {
		if got := Quorum(n); got != want {
			t.Errorf("quorum of %d: %d", n, got)
		}
	}
}

// TestCheckLearners checks which learners are in the way of a machine that joins.
func TestCheckLearners(t *testing.T) {
	const own, other = "https://192.0.2.9:2380", "https://192.0.2.2:2380"
	voter := Member{ID: 1, Name: "m1", Peers: []string{"https://192.0.2.1:2380"}}
	learner := Member{ID: 3, Name: "m3", Learner: true, Peers: []string{other}}
	if err := CheckLearners([]Member{voter, {ID: 2, Name: "m9", Peers: []string{own}}, learner}, "m9", own); err != nil {
		t.Errorf("the machine is a member already: %v", err)
	}
	for name, tc := range map[string]struct {
		member Member
		want   string // the end of the error
	}{
		"its own":              {member: Member{ID: 2, Learner: true, Peers: []string{own}}},
		"its own, by the name": {member: Member{ID: 2, Name: "m9", Learner: true, Peers: []string{other}}},
		"a started one":        {Member{ID: 2, Name: "m2", Learner: true, Peers: []string{other}}, "--force m2"},
		"one without a name":   {Member{ID: 2, Learner: true, Peers: []string{other}}, "--force 192.0.2.2"},
		"one with a vote":      {member: Member{ID: 2, Name: "m2", Peers: []string{other}}},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckLearners([]Member{voter, tc.member}, "m9", own)
			if tc.want == "" && err == nil {
				return
			}
			if !errors.Is(err, ErrLearner) || tc.want == "" || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
