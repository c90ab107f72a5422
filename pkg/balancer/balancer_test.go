// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/balancer"
)

// front is a balancer under test with its listener.
type front struct {
	*testing.T
	*balancer.Balancer
	listener net.Listener
	stop     context.CancelFunc
	ended    chan error
}

func serve(t *testing.T, servers ...string) *front {
	t.Helper()
	f := &front{T: t, Balancer: balancer.New(clock.Real(), slog.New(slog.DiscardHandler)), listener: listen(t),
		ended: make(chan error, 1)}
	f.Impatient()
	f.SetServers(servers)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f.stop = cancel
	go func() { f.ended <- f.Serve(ctx, f.listener) }()
	t.Cleanup(func() {
		f.stop()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// client is a connection through the balancer.
type client struct {
	net.Conn
	server string // name of the server at the other end; empty if there is none
}

func (f *front) connect() client {
	f.Helper()
	conn, err := net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	name := make([]byte, 1)
	if _, err := io.ReadFull(conn, name); err != nil {
		return client{Conn: conn}
	}
	return client{Conn: conn, server: string(name)}
}

// servers returns the names of the servers of n new connections, sorted.
func (f *front) servers(n int) string {
	f.Helper()
	var out []string
	for range n {
		out = append(out, f.connect().server)
	}
	slices.Sort(out)
	return strings.Join(out, "")
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

// talker starts a server. It answers each connection with its name, and then sends back all bytes
// that it receives.
func talker(t *testing.T, name string) (address string, stop func()) {
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
	return l.Addr().String(), func() { _ = l.Close() }
}

func (c client) echoes(t *testing.T) {
	t.Helper()
	said := "hello"
	if _, err := io.WriteString(c, said); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, len(said))
	if _, err := io.ReadFull(c, heard); err != nil || string(heard) != said {
		t.Errorf("server %s: %q, %v", c.server, heard, err)
	}
}

// ends waits until the connection is closed.
func (c client) ends(t *testing.T) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from server %s, want the end of the connection", n, c.server)
	}
}

func TestConnectionsGoToServersInTurn(t *testing.T) {
	one, stopOne := talker(t, "1")
	two, stopTwo := talker(t, "2")
	f := serve(t, one, two, one)
	if got := f.servers(4); got != "1122" {
		t.Errorf("servers %s, want two connections to each", got)
	}
	f.connect().echoes(t)
	stopOne()
	if got := f.servers(3); got != "222" {
		t.Errorf("servers %s, with the first one down", got)
	}
	stopTwo()
	if got := f.servers(2); got != "" {
		t.Errorf("servers %s, with all of them down", got)
	}
}

func TestListOfServersChanges(t *testing.T) {
	one, _ := talker(t, "1")
	two, _ := talker(t, "2")
	f := serve(t)
	if got := f.servers(1); got != "" {
		t.Errorf("server %s without a list", got)
	}
	f.SetServers([]string{one})
	old := f.connect()
	f.SetServers([]string{two, one})
	old.echoes(t)
	if got := f.servers(4); got != "1122" {
		t.Errorf("servers %s, want two connections to each", got)
	}
	f.SetServers([]string{two})
	old.ends(t)
	if got := f.servers(2); got != "22" {
		t.Errorf("servers %s after the first one has left", got)
	}
	if got := f.Servers(); !slices.Equal(got, []string{two}) {
		t.Errorf("servers %v", got)
	}
}

func TestUnusableServers(t *testing.T) {
	one, _ := talker(t, "1")
	two, _ := talker(t, "2")
	f := serve(t, one, two)
	f.SetUsable("192.0.2.1:6443", false) // not in the list
	first, second := f.connect(), f.connect()
	if first.server != "1" {
		first, second = second, first
	}
	f.SetUsable(one, false)
	first.ends(t)
	second.echoes(t)
	if got := f.servers(4); got != "2222" {
		t.Errorf("servers %s, with the first one unusable", got)
	}
	f.SetUsable(two, false)
	second.echoes(t)
	if got := f.servers(2); got != "12" {
		t.Errorf("servers %s, want all of them, because none is usable", got)
	}
	f.SetUsable(one, true)
	second.ends(t)
	if got := f.servers(2); got != "11" {
		t.Errorf("servers %s, with the second one unusable", got)
	}
}

func TestConnectionEndsWithItsPeer(t *testing.T) {
	l := listen(t)
	f := serve(t, l.Addr().String())
	conn, err := net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = peer.Close()
	client{Conn: conn}.ends(t)

	conn, err = net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if peer, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	client{Conn: peer}.ends(t)
}

func TestConnectionsEndWithTheBalancer(t *testing.T) {
	one, _ := talker(t, "1")
	f := serve(t, one)
	open := f.connect()
	f.stop()
	open.ends(t)
}

// TestSelect checks that servers that are not admitted get no connections, not even if no other server
// works, and that their connections are closed.
func TestSelect(t *testing.T) {
	a, stop := talker(t, "a")
	b, _ := talker(t, "b")
	f := serve(t, a, b)
	f.Admit(a, true)
	if got := f.servers(4); got != "aabb" {
		t.Errorf("before Select: %s", got)
	}
	conns := map[string]client{}
	for range 2 {
		c := f.connect()
		conns[c.server] = c
	}
	f.Select()
	conns["b"].ends(t)
	conns["a"].echoes(t)
	if got := f.servers(4); got != "aaaa" {
		t.Errorf("after Select: %s", got)
	}
	f.SetUsable(a, false) // it is better than none
	if got := f.servers(2); got != "aa" {
		t.Errorf("not ready: %s", got)
	}
	stop()
	if got := f.servers(2); got != "" {
		t.Errorf("the admitted server has ended: %s", got)
	}
	c, _ := talker(t, "c")
	f.SetServers([]string{b, c})
	if got := f.servers(2); got != "" {
		t.Errorf("new servers: %s", got)
	}
	f.Admit(c, true)
	f.Admit("192.0.2.1:1", true) // not in the list
	last := f.connect()
	if last.server != "c" {
		t.Errorf("admitted later: %s", last.server)
	}
	f.Admit(c, false)
	last.ends(t)
}

// TestAge checks that older servers get connections only if no better one works, and that these connections
// are closed when a better one works again.
func TestAge(t *testing.T) {
	a, stop := talker(t, "a")
	b, _ := talker(t, "b")
	f := serve(t, a, b)
	if got := f.servers(4); got != "aabb" {
		t.Errorf("ages unknown: %s", got)
	}
	kept := f.connect()
	for kept.server != "b" {
		kept = f.connect()
	}
	f.SetAge(b, balancer.Older)
	f.SetAge("192.0.2.1:1", balancer.Older) // not in the list
	if got := f.servers(4); got != "aaaa" {
		t.Errorf("b is older: %s", got)
	}
	kept.echoes(t) // its client may be as old
	f.SetAge(a, balancer.Older)
	if got := f.servers(4); got != "aabb" {
		t.Errorf("both are older: %s", got)
	}
	f.SetAge(a, balancer.NotOlder)
	f.SetUsable(a, false)
	f.LeaveOlder()
	kept.echoes(t)
	if got := f.servers(2); got != "bb" {
		t.Errorf("a is not ready: %s", got)
	}
	stop()
	f.SetUsable(a, true)
	if got := f.servers(2); got != "bb" {
		t.Errorf("a does not accept connections: %s", got)
	}
	for done := false; !done; { // until it is idle
		f.LeaveOlder()
		_ = kept.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := kept.Read(make([]byte, 1))
		done = errors.Is(err, io.EOF)
	}
}

// TestRestart checks that a client waits while the only server is restarted.
func TestRestart(t *testing.T) {
	l := listen(t)
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, front := balancer.New(clock.Real(), slog.New(slog.DiscardHandler)), listen(t)
	b.SetServers([]string{address})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, front) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := io.WriteString(server, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestDrain checks that a balancer that ends lets an answer through that has begun, and then closes the
// connection.
func TestDrain(t *testing.T) {
	l := listen(t)
	f := serve(t, l.Addr().String())
	conn, server := f.answering(l)
	f.stop()
	for refused := false; !refused; { // until the balancer has closed its listener
		if _, err := server.Write([]byte(".")); err != nil {
			t.Fatal(err)
		}
		other, err := net.Dial("tcp", f.listener.Addr().String())
		if refused = err != nil; !refused {
			_ = other.Close()
		}
	}
	if _, err := server.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(answer), ".end") {
		t.Errorf("answer %q, %v", answer, err)
	}
}

// TestAnswerIsNotCut checks that an answer that has begun gets through if its server leaves the list or becomes
// unusable, and that its connection is closed then.
func TestAnswerIsNotCut(t *testing.T) {
	other, _ := talker(t, "2")
	for name, leave := range map[string]func(f *front, server string){
		"list":   func(f *front, _ string) { f.SetServers([]string{other}) },
		"usable": func(f *front, server string) { f.SetUsable(server, false) },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			f := serve(t, l.Addr().String())
			conn, server := f.answering(l)
			f.SetServers([]string{l.Addr().String(), other})
			leave(f, l.Addr().String())
			if _, err := server.Write([]byte("end")); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(conn); err != nil || string(answer) != "end" {
				t.Errorf("answer %q, %v", answer, err)
			}
		})
	}
}

// answering returns both ends of a connection to a listener, through which an answer has begun.
func (f *front) answering(l net.Listener) (client, server net.Conn) {
	f.Helper()
	client, err := net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = client.Close() })
	if server, err = l.Accept(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = server.Close() })
	if _, err := io.WriteString(server, "."); err != nil {
		f.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		f.Fatal(err)
	}
	return client, server
}
