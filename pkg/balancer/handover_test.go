// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/balancer"
)

// chain is a balancer that is restarted again and again. The test keeps what systemd keeps.
type chain struct {
	*testing.T
	servers []string
	release string
	setUp   func(*balancer.Balancer) // called before the next balancer serves
	front   *os.File                 // the listener
	address string
	*balancer.Balancer

	mu    sync.Mutex
	kept  []keptConnection
	stop  context.CancelCauseFunc
	ended chan error
}

// keptConnection has the sockets of a connection.
type keptConnection struct {
	files   []*os.File
	release string
}

func newChain(t *testing.T, servers ...string) *chain {
	t.Helper()
	l := listen(t)
	front, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	c := &chain{T: t, servers: servers, release: "1", front: front, address: l.Addr().String(),
		setUp: func(*balancer.Balancer) {}}
	_ = l.Close() // front is a copy of it
	c.start()
	t.Cleanup(func() {
		c.end()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range c.kept {
			for _, f := range k.files {
				_ = f.Close()
			}
		}
	})
	return c
}

// keep is the function that the balancer calls for each connection when it ends.
func (c *chain) keep(conn balancer.Connection) error {
	var files []*os.File
	for _, tcp := range []net.Conn{conn.Client, conn.Server} {
		if tcp == nil {
			continue
		}
		f, err := tcp.(*net.TCPConn).File()
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, keptConnection{files, conn.Release})
	return nil
}

// start starts the next balancer with what the last one has handed over.
func (c *chain) start() {
	c.Helper()
	l, err := net.FileListener(c.front)
	if err != nil {
		c.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var inherited []balancer.Connection
	for _, k := range c.kept {
		var conns [2]net.Conn
		for i, f := range k.files {
			if conns[i], err = net.FileConn(f); err != nil {
				c.Fatal(err)
			}
			_ = f.Close()
		}
		inherited = append(inherited, balancer.Connection{Client: conns[0], Server: conns[1], Release: k.release})
	}
	c.kept = nil
	b := balancer.New(clock.Real(), slog.New(slog.DiscardHandler))
	b.HandOver(c.release, c.keep)
	b.SetServers(c.servers)
	c.setUp(b)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(c.Context()))
	c.Balancer, c.stop, c.ended = b, cancel, make(chan error, 1)
	go func(ended chan<- error) { ended <- b.Serve(ctx, l, inherited...) }(c.ended)
}

func (c *chain) end() { c.endWith(nil) }

// endWith ends the balancer for a reason.
func (c *chain) endWith(cause error) {
	c.Helper()
	c.stop(cause)
	if err := <-c.ended; err != nil {
		c.Error(err)
	}
}

// TestHandOver restarts a balancer while clients write without a pause, with both versions of HTTP and TLS.
// No request may fail, and no connection may be opened again.
func TestHandOver(t *testing.T) {
	const clients, restarts = 4, 30
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			_, _ = w.Write(body)
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	c := newChain(t, server.Listener.Addr().String())
	var written atomic.Int64
	var writers sync.WaitGroup
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range clients {
		transport := server.Client().Transport.(*http.Transport).Clone()
		if i%2 == 0 {
			transport.ForceAttemptHTTP2 = false
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		client := &http.Client{Transport: transport}
		defer client.CloseIdleConnections()
		body := bytes.Repeat([]byte{byte(i)}, 1000<<(4*i)) // up to 4 MB: a restart interrupts it in the middle
		writers.Go(func() {
			for writing.Err() == nil {
				if err := put(client, "https://"+c.address, body); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				written.Add(1)
			}
		})
	}
	for range restarts {
		for before := written.Load(); written.Load() < before+clients && !t.Failed(); {
			if err := put(server.Client(), server.URL, nil); err != nil { // takes some time
				t.Fatal(err)
			}
		}
		c.end()
		c.start()
	}
	stop()
	writers.Wait()
	t.Logf("%d requests", written.Load())
	if n := opened.Load(); n != clients+1 {
		t.Errorf("%d connections, want %d", n, clients+1)
	}
}

var errDifferent = errors.New("the answer is not the request")

// put sends a request whose method is not repeated by a client after an error.
func put(client *http.Client, url string, body []byte) error {
	req, err := http.NewRequest(http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.GetBody = nil // so that the transport does not repeat it either
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(got, body) {
		err = fmt.Errorf("%w: %d bytes, want %d", errDifferent, len(got), len(body))
	}
	return err
}

// TestHandOverWithoutServer checks that a client that waits for a server when the balancer ends gets one from
// the next balancer, and that a connection to a server that has left the list is closed.
func TestHandOverWithoutServer(t *testing.T) {
	down := listen(t)
	_ = down.Close()
	c := newChain(t, down.Addr().String())
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one, _ := talker(t, "1")
	c.end()
	c.servers = []string{one}
	c.start()
	name := make([]byte, 1)
	if _, err := io.ReadFull(conn, name); err != nil || string(name) != "1" {
		t.Errorf("server %q, %v", name, err)
	}
	two, _ := talker(t, "2")
	c.end()
	c.servers = []string{two}
	c.start()
	client{Conn: conn}.ends(t)
}

// dial connects to the balancer, and waits for the server's name, which must be want.
func (c *chain) dial(want string) client {
	c.Helper()
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	name := make([]byte, 1)
	if _, err := io.ReadFull(conn, name); err != nil || string(name) != want {
		c.Fatalf("server %q, %v, want %s", name, err, want)
	}
	return client{Conn: conn, server: want}
}

// watchedListener calls a function whenever a connection is to be accepted.
type watchedListener struct {
	net.Listener
	accepts func()
}

func (l watchedListener) Accept() (net.Conn, error) {
	l.accepts()
	return l.Listener.Accept()
}

// TestInheritedConnectionsCount checks that connections that were handed over count to the maximum.
func TestInheritedConnectionsCount(t *testing.T) {
	one, _ := talker(t, "1")
	var near []client
	var inherited []balancer.Connection
	for range 2 {
		front := listen(t)
		conn, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := front.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server, err := net.Dial("tcp", one)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, 1)); err != nil { // its name
			t.Fatal(err)
		}
		near = append(near, client{Conn: conn, server: "1"})
		inherited = append(inherited, balancer.Connection{Client: accepted, Server: server})
	}
	b := balancer.New(clock.Real(), slog.New(slog.DiscardHandler))
	b.Limit(2)
	b.SetServers([]string{one})
	var free atomic.Bool
	accepts := make(chan bool, 10)
	l := watchedListener{listen(t), func() { accepts <- free.Load() }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, l, inherited...) }()
	for range 100 { // time for a balancer that does not count them
		near[0].echoes(t)
		near[1].echoes(t)
	}
	free.Store(true)
	_ = near[0].Close()
	if !<-accepts {
		t.Error("more connections than the maximum")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestInheritedConnectionToOlderServer checks that a connection to an older server moves to a better one after a
// hand-over, but not if the client may be as old as the server, because a balancer of another release opened it.
func TestInheritedConnectionToOlderServer(t *testing.T) {
	a, _ := talker(t, "a")
	b, _ := talker(t, "b")
	c := newChain(t, a)
	of1 := c.dial("a")
	c.end()
	c.release = "2"
	c.start()
	of2 := c.dial("a")
	c.end()
	c.servers = []string{a, b}
	c.start()
	of1.echoes(t)
	of2.echoes(t)
	c.SetAge(a, balancer.Older)
	c.SetAge(b, balancer.NotOlder)
	for done := false; !done; { // until it is idle
		c.LeaveOlder()
		_ = of2.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := of2.Read(make([]byte, 1))
		done = errors.Is(err, io.EOF)
	}
	c.LeaveOlder() // the other one has been idle for longer
	of1.echoes(t)
	c.dial("b").echoes(t)
}

// TestInheritedConnectionToRefusedServer checks that a connection goes on after a hand-over only when its server
// is admitted, and that it is closed if the server is not admitted in time.
func TestInheritedConnectionToRefusedServer(t *testing.T) {
	a, _ := talker(t, "a")
	b, _ := talker(t, "b")
	c := newChain(t, a)
	toA := c.dial("a")
	c.end()
	c.servers = []string{b}
	c.start() // closes the connection
	toA.ends(t)

	toB := c.dial("b")
	c.end()
	admitted := make(chan struct{})
	c.setUp = func(b *balancer.Balancer) { b.Select() }
	c.start()
	if _, err := io.WriteString(toB, "x"); err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(toB, make([]byte, 1))
		select {
		case <-admitted:
		default:
			t.Error("a server that was not admitted has answered")
		}
		heard <- err
	}()
	c.end() // hands the waiting connection over again
	c.start()
	close(admitted)
	c.Admit(b, true)
	if err := <-heard; err != nil {
		t.Error(err)
	}
	c.end()
	c.setUp = func(b *balancer.Balancer) {
		b.Impatient()
		b.Select()
	}
	c.start()
	toB.ends(t)
}

// TestStop checks that a balancer without a successor closes its connections instead of handing them over.
func TestStop(t *testing.T) {
	one, _ := talker(t, "1")
	c := newChain(t, one)
	conn := c.dial("1")
	c.endWith(balancer.ErrStopped)
	conn.ends(t)
	if len(c.kept) != 0 {
		t.Errorf("%d connections were handed over", len(c.kept))
	}
	c.start()
}
