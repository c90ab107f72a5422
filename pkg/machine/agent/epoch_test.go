// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/epoch"
)

// testMachine is a machine with a balancer and its checks, whose API servers are named a and b.
type testMachine struct {
	*testing.T
	*checks
	known   *known
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
	k := newKnown(Config{Servers: file + ".servers", Former: file + ".former", Log: discard()}, b)
	return &testMachine{t, c, k, servers, l.Addr().String(), func() {
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
	if got, _ := epoch.File(file).Read(); got != 7 {
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

// TestFormerServers checks that a machine finds a restored server that is not in its list any more, because the
// list is that of control planes that are cut off.
func TestFormerServers(t *testing.T) {
	servers := map[string]*server{"old": newServer(t), "restored": newServer(t)}
	servers["a"] = servers["old"] // the tests' client trusts it
	for i, s := range []*server{servers["old"], servers["restored"]} {
		s.code.Store(int32(http.StatusOK + i))
	}
	address := func(name string) string { return servers[name].Listener.Addr().String() }
	file := filepath.Join(t.TempDir(), "epoch")
	m := boot(t, file, 0, servers)
	defer func() { m.stop() }()
	shown := map[string]int64{}
	m.seen = func(_ context.Context, all map[string]int64, highest int64) {
		shown = all
		shown["highest"] = highest
	}
	uses := func(step, want string) {
		t.Helper()
		m.roundFormer(t.Context(), m.known)
		m.round(t.Context())
		if got := m.balancer.Servers(); !slices.Equal(got, []string{address(want)}) {
			t.Errorf("%s: uses %s", step, got)
		}
	}
	m.known.use([]string{address("old")})
	uses("neither has an epoch", "old")
	servers["restored"].epoch.Store(7)
	servers["restored"].code.Store(http.StatusInternalServerError)
	uses("a former server with a higher epoch is not ready", "old")
	servers["restored"].code.Store(http.StatusCreated)
	uses("a former server has a higher epoch", "restored")
	if shown[address("restored")] != 7 || shown["highest"] != 7 {
		t.Errorf("shown %v", shown)
	}
	servers["restored"].code.Store(http.StatusInternalServerError)
	m.round(t.Context())
	if shown[address("restored")] != 7 || shown["highest"] != 0 {
		t.Errorf("the restored server is not ready: shown %v", shown)
	}
	servers["restored"].code.Store(http.StatusCreated)
	if stored, err := ReadServers(file + ".servers"); err != nil || !slices.Equal(stored, m.balancer.Servers()) {
		t.Errorf("stored %v, %v", stored, err)
	}
	m.known.use([]string{address("old")}) // a late event of the old server
	m.round(t.Context())
	uses("the machine knows the epoch already", "restored")

	m.known.use([]string{address("old")})
	m.stop()
	m = boot(t, file, 0, servers)
	m.balancer.SetServers([]string{address("old")})
	m.round(t.Context())
	uses("after a restart", "restored")
	servers["old"].epoch.Store(7)
	m.roundFormer(t.Context(), m.known)
	if got := m.balancer.Servers(); !slices.Equal(got, []string{address("restored")}) {
		t.Errorf("a former server has the same epoch: uses %s", got)
	}
}

// TestRemovedServer checks that a former server that was removed from the cluster does not count, also when it has a
// higher epoch, and that it counts again after it has joined.
func TestRemovedServer(t *testing.T) {
	const own, removed = "192.0.2.1:6443", "[::ffff:192.0.2.3]:6443"
	file := filepath.Join(t.TempDir(), "former")
	c := Config{Servers: filepath.Join(t.TempDir(), "servers"), Former: file, Log: discard()}
	k := newKnown(c, balancer.New(clock.Real(), discard()))
	is := func(step string, want ...string) {
		t.Helper()
		if got := k.formerServers(); !slices.Equal(got, want) {
			t.Errorf("%s: former servers %v", step, got)
		}
		if stored := newKnown(c, k.balancer).formerServers(); !slices.Equal(stored, want) {
			t.Errorf("%s: stored %v", step, stored)
		}
	}
	k.use([]string{own, removed})
	k.use([]string{own})
	is("cut off", removed)
	k.forget([]string{"192.0.2.3", "192.0.2.30"})
	is("removed while it was cut off")
	k.use([]string{own, removed})
	k.use([]string{own})
	is("removed while it was in the list")
	k.forget(nil)
	k.use([]string{own, removed})
	k.use([]string{own})
	is("joined again, and cut off", removed)
}

// TestRemovalList checks that the list of removed servers is with the endpoints, that a server among them does not
// count as removed, and that the list is limited.
func TestRemovalList(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	slice := func() *discoveryv1.EndpointSlice {
		t.Helper()
		out, err := s.Client.DiscoveryV1().EndpointSlices("default").Get(ctx, apiService, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	server := slice().Endpoints[0].Addresses[0]
	for _, step := range []struct {
		change func(context.Context, kubernetes.Interface, []string) error
		list   []string
		want   string
	}{
		{RemoveServers, []string{"192.0.2.2"}, "192.0.2.2"},
		{RemoveServers, []string{"192.0.2.3", "2001:db8::3"}, "192.0.2.2 192.0.2.3 2001:db8::3"},
		{RemoveServers, []string{"192.0.2.2", server}, "192.0.2.3 2001:db8::3 192.0.2.2"},
		{ReadmitServers, []string{"2001:db8::3", "192.0.2.9"}, "192.0.2.3 192.0.2.2"},
		{ReadmitServers, []string{"192.0.2.2", "192.0.2.3"}, ""},
	} {
		if err := step.change(ctx, s.Client, step.list); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(removedIn(slice()), " "); got != step.want {
			t.Errorf("removed %q, want %q", got, step.want)
		}
	}
	for i := range maxRemoved {
		if err := RemoveServers(ctx, s.Client, []string{fmt.Sprintf("198.51.100.%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := annotated(slice()); len(got) != maxRemoved || got[0] != "198.51.100.0" {
		t.Errorf("removed %v", got)
	}
}

// TestFormerServersAreLimited checks that a machine does not ask more and more servers.
func TestFormerServersAreLimited(t *testing.T) {
	b := balancer.New(clock.Real(), discard())
	k := newKnown(Config{Servers: filepath.Join(t.TempDir(), "servers"), Former: filepath.Join(t.TempDir(), "former"),
		Log: discard()}, b)
	for i := range 3 * maxFormer {
		k.use([]string{fmt.Sprintf("192.0.2.%d:6443", i%(2*maxFormer))})
	}
	got := k.formerServers()
	if len(got) != maxFormer || got[maxFormer-1] != fmt.Sprintf("192.0.2.%d:6443", maxFormer-2) ||
		slices.Contains(got, b.Servers()[0]) {
		t.Errorf("former servers %v, servers %v", got, b.Servers())
	}
}

// TestUnstoredEpoch checks that a server whose epoch cannot be stored is not used: after a restart, the machine would
// use servers with the state before the restore again. As soon as the epoch can be stored, the server is used.
func TestUnstoredEpoch(t *testing.T) {
	for name, own := range map[string]int64{"never restored": 0, "restored before": 5} {
		t.Run(name, func(t *testing.T) {
			servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
			servers["a"].code.Store(http.StatusOK)
			servers["b"].code.Store(http.StatusForbidden)
			servers["a"].epoch.Store(own)
			m := boot(t, filepath.Join(t.TempDir(), "epoch"), 0, servers)
			defer func() { m.stop() }()
			uses := func(step, want string) {
				t.Helper()
				m.round(t.Context())
				if got := m.used(); got != want {
					t.Errorf("%s: uses %s, want %s", step, got, want)
				}
			}
			servers["b"].epoch.Store(own)
			uses("before", "ab")
			stored := m.epochs.file
			m.epochs.file += "/file" // nothing can be stored below a file
			if err := os.WriteFile(string(stored), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			servers["b"].epoch.Store(7)
			uses("restored on b", "a")
			m.epochs.file = stored
			uses("stored", "b")
		})
	}
}

// TestFormerServerWithUnstoredEpoch checks that the epoch of a former server is on the disk before the machine uses
// the server.
func TestFormerServerWithUnstoredEpoch(t *testing.T) {
	servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // nothing can be stored below it
		t.Fatal(err)
	}
	m := boot(t, filepath.Join(dir, "epoch"), 0, servers)
	defer func() { m.stop() }()
	address := func(name string) string { return servers[name].Listener.Addr().String() }
	m.known.use([]string{address("b")})
	m.known.use([]string{address("a")})
	servers["a"].code.Store(http.StatusOK)
	servers["b"].code.Store(http.StatusOK)
	servers["b"].epoch.Store(7)
	m.roundFormer(t.Context(), m.known)
	if got := m.balancer.Servers(); !slices.Equal(got, []string{address("a")}) {
		t.Errorf("the epoch is not stored: uses %s", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	m.roundFormer(t.Context(), m.known)
	stored, _ := m.epochs.file.Read()
	if got := m.balancer.Servers(); !slices.Equal(got, []string{address("b")}) || stored != 7 {
		t.Errorf("uses %s, and has stored %d", got, stored)
	}
}

// TestFormerServersAreNotAskedAtOnce checks that an agent has time to read which servers were removed while it did not
// run before it asks earlier servers.
func TestFormerServersAreNotAskedAtOnce(t *testing.T) {
	servers := map[string]*server{"a": newServer(t), "b": newServer(t)}
	m := boot(t, filepath.Join(t.TempDir(), "epoch"), 0, servers)
	clk := testclock.NewFakeClock(time.Now())
	m.clock = clk
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended; m.stop() }()
	servers["b"].code.Store(http.StatusOK)
	servers["b"].epoch.Store(7)
	m.known.use([]string{servers["b"].Listener.Addr().String()})
	m.known.use([]string{servers["a"].Listener.Addr().String()})
	go func() { defer close(ended); m.runFormer(ctx, m.known) }()
	uses := func(name string) (any, bool) {
		got := m.balancer.Servers()
		return got, slices.Equal(got, []string{servers[name].Listener.Addr().String()})
	}
	controllertest.Eventually(t, "the pause", func(context.Context) (any, bool) { return nil, clk.HasWaiters() })
	if got, ok := uses("a"); !ok {
		t.Errorf("at once: uses %v", got)
	}
	clk.Step(checkInterval)
	controllertest.Eventually(t, "the first round", func(context.Context) (any, bool) { return uses("b") })
}
