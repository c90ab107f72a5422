// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/balancer"
)

func TestEpochFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "epoch")
	for _, content := range []string{"", "x", "-1", "1e3"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadEpoch(file); got != 0 {
			t.Errorf("%q: %d", content, got)
		}
	}
	if err := WriteEpoch(file, 42); err != nil || ReadEpoch(file) != 42 {
		t.Error(ReadEpoch(file), err)
	}
	if got := ReadEpoch(file + ".none"); got != 0 {
		t.Errorf("without a file: %d", got)
	}
}

// testMachine is a machine with a balancer and its checks, whose API servers are named a and b.
type testMachine struct {
	*testing.T
	*checks
	servers map[string]*server
	front   string
	stop    func()
}

// boot starts the balancer of a machine with the given file. If minor is not 0, the machine's release has this
// minor version of Kubernetes.
func boot(t *testing.T, file string, minor uint, servers map[string]*server) *testMachine {
	t.Helper()
	var own *version.Version
	if minor > 0 {
		own = version.MajorMinor(1, minor)
	}
	b := balancer.New(clock.Real(), discard())
	e := newEpochs(file, b, discard())
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.Listener.Addr().String())
	}
	b.SetServers(addresses)
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, l) }()
	c, err := newChecks(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: servers["a"].Certificate().Raw}),
	}}, e, newAges(own, b), clock.Real(), discard())
	if err != nil {
		t.Fatal(err)
	}
	return &testMachine{t, c, servers, l.Addr().String(), func() {
		c.client.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}}
}

// used returns the names of the servers that four new connections reach, or "none" if they fail.
func (m *testMachine) used() string {
	m.Helper()
	client := m.servers["a"].Client()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	reached := map[string]bool{}
	for range 4 {
		resp, err := client.Get("https://" + m.front + "/readyz")
		if err != nil {
			reached["none"] = true
			continue
		}
		_ = resp.Body.Close()
		for name, s := range m.servers {
			if resp.StatusCode == int(s.code.Load()) {
				reached[name] = true
			}
		}
	}
	out := ""
	for _, name := range []string{"a", "b", "none"} {
		if reached[name] {
			out += name
		}
	}
	return out
}

// TestEpochs checks which of two API servers a machine uses after a restore on one of them, also after the
// machine has restarted.
func TestEpochs(t *testing.T) {
	servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
	servers["a"].code.Store(http.StatusOK)
	servers["b"].code.Store(http.StatusForbidden) // works, too; only the code is different
	file := filepath.Join(t.TempDir(), "epoch")
	m := boot(t, file, 0, servers)
	step := func(name, want string, a, b int64) {
		t.Helper()
		servers["a"].epoch.Store(a)
		servers["b"].epoch.Store(b)
		m.round(t.Context())
		if got := m.used(); got != want {
			t.Errorf("%s: uses %s, want %s", name, got, want)
		}
	}
	step("never restored", "ab", 0, 0)
	step("restored on b", "b", 0, 7)
	if got := ReadEpoch(file); got != 7 {
		t.Errorf("the file has %d", got)
	}
	step("a has joined b", "ab", 7, 7)
	step("restored on a", "a", 9, 7)
	step("a has lost its store", "none", 0, 7)
	step("a is back", "a", 9, 7)

	m.stop()
	m = boot(t, file, 0, servers)
	defer func() { m.stop() }()
	if got := m.used(); got != "none" {
		t.Errorf("before the first check: uses %s", got)
	}
	servers["a"].Close()
	if m.round(t.Context()) {
		t.Error("no server of the restored cluster answers, but one was found")
	}
	if got := m.used(); got != "none" {
		t.Errorf("only the server before the restore works: uses %s", got)
	}
	servers["b"].epoch.Store(9)
	if !m.round(t.Context()) {
		t.Error("the server of the restored cluster was not found")
	}
	if got := m.used(); got != "b" {
		t.Errorf("the server of the restored cluster works: uses %s", got)
	}
}

// TestUnstoredEpoch checks that an epoch that cannot be stored is not used, so that servers are not refused
// until the machine restarts, and used again afterwards.
func TestUnstoredEpoch(t *testing.T) {
	b := balancer.New(clock.Real(), discard())
	b.SetServers([]string{"192.0.2.1:1", "192.0.2.2:1"})
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEpochs(filepath.Join(blocked, "epoch"), b, discard())
	if !e.apply(b, b.Servers(), []int64{7, 0}) || e.highest != 0 || e.refused["192.0.2.2:1"] {
		t.Errorf("epochs %+v", e)
	}
}
