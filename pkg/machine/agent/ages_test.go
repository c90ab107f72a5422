// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"path/filepath"
	"testing"

	"keelson.dev/keelson/pkg/balancer"
)

// TestAges checks which of two API servers a machine uses while a cluster is upgraded, and while it returns.
func TestAges(t *testing.T) {
	servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
	servers["a"].code.Store(http.StatusOK)
	servers["b"].code.Store(http.StatusForbidden) // works, too; only the code is different
	m := boot(t, filepath.Join(t.TempDir(), "epoch"), 38, servers)
	defer func() { m.stop() }()
	step := func(name, want string, a, b int32) {
		t.Helper()
		for s, minor := range map[string]int32{"a": a, "b": b} {
			if servers[s].minor.Swap(minor) != minor {
				servers[s].CloseClientConnections() // as a restart does
				<-m.ages.again
			}
		}
		m.round(t.Context())
		if got := m.used(); got != want {
			t.Errorf("%s: uses %s, want %s", name, got, want)
		}
	}
	servers["a"].minor.Store(37)
	servers["b"].minor.Store(37)
	step("both are older", "ab", 37, 37)
	step("a was upgraded", "a", 38, 37)
	step("both were upgraded", "ab", 38, 38)
	step("a is newer", "ab", 39, 38)
	step("b has returned", "a", 38, 37)

	servers["a"].code.Store(http.StatusInternalServerError)
	m.round(t.Context())
	m.round(t.Context())
	if got := m.used(); got != "b" {
		t.Errorf("only the older server is ready: uses %s", got)
	}
	servers["a"].code.Store(http.StatusOK)
	step("a is ready again", "a", 38, 37)
}

// TestRestartedServer checks that a server whose connection has ended is used only if no other one is known not
// to be older, before the next check.
func TestRestartedServer(t *testing.T) {
	servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
	for i, name := range []string{"a", "b"} {
		servers[name].minor.Store(38)
		servers[name].code.Store(http.StatusOK + int32(i))
	}
	m := boot(t, filepath.Join(t.TempDir(), "epoch"), 38, servers)
	defer func() { m.stop() }()
	m.round(t.Context())
	servers["b"].CloseClientConnections()
	<-m.ages.again
	if got := m.used(); got != "a" {
		t.Errorf("b has restarted: uses %s", got)
	}
	servers["a"].CloseClientConnections()
	<-m.ages.again
	if got := m.used(); got != "ab" {
		t.Errorf("both have restarted: uses %s", got)
	}
}

// TestLateAnswer checks that an answer to the question for a version does not count if the server was
// restarted meanwhile.
func TestLateAnswer(t *testing.T) {
	s := newServer(t)
	m := boot(t, filepath.Join(t.TempDir(), "epoch"), 38, map[string]*server{"a": s})
	defer func() { m.stop() }()
	address := s.Listener.Addr().String()
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m.ages.forget(address)
		_, _ = w.Write([]byte(`{"gitVersion": "v1.38.0"}`))
	})
	m.ages.learn(t.Context(), m.client, address)
	if got := m.ages.known[address]; got == balancer.NotOlder {
		t.Error("the version of the earlier process is known")
	}
}
