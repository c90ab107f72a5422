// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
)

// talker starts a server. It answers each connection with its name, and then sends back all bytes
// that it receives.
func talker(t *testing.T, name string) net.Listener {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.WriteString(conn, name); err == nil {
					_, _ = io.Copy(conn, conn)
				}
			}()
		}
	}()
	return l
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestBalancer checks that the balancer forwards connections to servers in turn and skips a server
// that is down. It also checks that a connection ends when the client, the last server or the
// balancer ends.
func TestBalancer(t *testing.T) {
	one, two, front := talker(t, "1"), talker(t, "2"), listen(t)
	b := &balancer{servers: []string{one.Addr().String(), two.Addr().String()}, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { b.serve(ctx, front) })
	connect := func() (net.Conn, string) {
		t.Helper()
		conn, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		name := make([]byte, 1)
		if _, err := io.ReadFull(conn, name); err != nil {
			return conn, ""
		}
		return conn, string(name)
	}
	seen := map[string]int{}
	for range 4 {
		conn, name := connect()
		seen[name]++
		said := "hello"
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, len(said))
		if _, err := io.ReadFull(conn, heard); err != nil || string(heard) != said {
			t.Errorf("server %s: %q, %v", name, heard, err)
		}
	}
	if seen["1"] != 2 || seen["2"] != 2 {
		t.Errorf("not in turn: %v", seen)
	}
	_ = one.Close()
	for range 3 {
		if _, name := connect(); name != "2" {
			t.Errorf("server %q, with the first one down", name)
		}
	}
	open, _ := connect()
	_ = two.Close()
	if _, name := connect(); name != "" {
		t.Errorf("server %q, with all of them down", name)
	}
	cancel()
	done.Wait()
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its balancer")
	}
}

// TestReplicas checks that a single control plane has its store inside the API server. Several
// control planes must share an etcd to which only they can connect, and must use different
// addresses and files.
func TestReplicas(t *testing.T) {
	single := &Config{Name: "one", DataDir: t.TempDir()}
	for _, p := range controlProcesses(single, nil) {
		if p.name != apiserver && p.name != controllerManager && p.name != scheduler {
			t.Errorf("process %s of a single control plane", p.name)
		}
	}
	c := &Config{Name: "three", DataDir: t.TempDir(), ControlPlanes: 3}
	names, listens := map[string]bool{}, map[string]bool{}
	for _, p := range controlProcesses(c, nil) {
		if names[p.name] || p.inherit != nil {
			t.Errorf("process %s: again, or with the machine's socket", p.name)
		}
		names[p.name] = true
		for _, arg := range p.argv {
			for _, flag := range []string{"--bind-address=", "--listen-client-urls=", "--audit-log-path=", "--data-dir="} {
				if at := p.name[:3] + arg; len(arg) > len(flag) && arg[:len(flag)] == flag {
					if listens[at] {
						t.Errorf("process %s: %s is another's", p.name, arg)
					}
					listens[at] = true
				}
			}
		}
	}
	if len(names) != 3*3+etcdMembers {
		t.Errorf("processes: %v", names)
	}
}

// TestSettleReplicas checks that an existing cluster keeps its number of control planes, and that a
// different number is an error.
func TestSettleReplicas(t *testing.T) {
	dir := t.TempDir()
	c := &Config{Name: "two", DataDir: dir, ControlPlanes: 2}
	if err := settleReplicas(c); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(c.dirs().config(), c); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[int]int{0: 2, 2: 2, 1: 0, 3: 0} {
		again := &Config{Name: "two", DataDir: dir, ControlPlanes: asked}
		if err := settleReplicas(again); (err == nil) != (want != 0) || err == nil && again.ControlPlanes != want {
			t.Errorf("asked for %d: %v, %d", asked, err, again.ControlPlanes)
		}
	}
}
