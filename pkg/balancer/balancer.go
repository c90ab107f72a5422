// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package balancer forwards TCP connections to the API servers of a cluster, so that clients need
// only one address and go on working when a server does not.
//
// Invariants:
//
//   - New connections go to the usable servers in turn. A server that does not accept the connection
//     is skipped. If no server is usable, all are tried, because a health check can be wrong.
//   - If no server accepts a connection, the client waits for some seconds. A server that is restarted
//     needs less. Clients would not repeat a write after an error.
//   - After Select, only servers that Admit has admitted get connections, even if no other one works.
//   - The connections to a server that is no longer in the list are closed, so that its clients
//     connect to another server. So are those to a server that is not usable while another one is.
//   - Connections to a machine whose link is cut are closed within seconds, also if nothing is sent.
//   - When a balancer ends, it closes each connection as soon as no request is in the middle of it, and
//     all of them after two seconds.
//   - The number of open connections is limited. More clients wait in the listener's queue.
//
// The package does not interpret the traffic: clients see the certificates of the servers. It does
// not find servers and does not check their health; its callers do.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"keelson.dev/api/clock"
)

const (
	// maxConnections is the maximum number of open connections of a listener.
	maxConnections = 10_000
	// dialTimeout is how long the balancer waits for a server to accept a connection.
	dialTimeout = time.Second
	// patience is for how long a client waits if no server accepts its connection, and retryPause the time
	// between two attempts.
	patience   = 3 * time.Second
	retryPause = 100 * time.Millisecond
	// acceptPause is the pause after a connection could not be accepted, for example because the
	// process has no free file descriptors.
	acceptPause = time.Second
	// deadAfter is how long a server may leave bytes or keep-alive probes unacknowledged. A working
	// network needs milliseconds; the rest is for packets that must be sent again.
	deadAfter = 5 * time.Second
	// probeAfter and probeInterval are the times without traffic before the first keep-alive probe
	// and between the next ones. Probes are packets without data that the kernel sends.
	probeAfter    = 2 * time.Second
	probeInterval = time.Second
)

// Balancer forwards connections. Its methods may be called concurrently.
type Balancer struct {
	clock    clock.Clock
	log      *slog.Logger
	patience time.Duration

	mu      sync.Mutex
	servers []*server
	turn    int
	// selective is true if only admitted servers get connections.
	selective bool
}

// server is an API server in the list of a balancer. Its fields are guarded by Balancer.mu.
type server struct {
	address  string
	unusable bool
	admitted bool
	// conns has the open connections to the server.
	conns map[net.Conn]struct{}
}

// New returns a balancer without servers.
func New(clk clock.Clock, log *slog.Logger) *Balancer {
	return &Balancer{clock: clk, log: log, patience: patience}
}

// SetServers replaces the list of servers. Each is HOST:PORT. New servers are usable. Servers that
// are in both lists keep their connections and are usable or not as before.
func (b *Balancer) SetServers(addresses []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var next []*server
	for _, a := range addresses {
		if i := slices.IndexFunc(next, func(s *server) bool { return s.address == a }); i >= 0 {
			continue
		}
		s := b.find(a)
		if s == nil {
			s = &server{address: a, conns: map[net.Conn]struct{}{}}
		}
		next = append(next, s)
	}
	for _, s := range b.servers {
		if !slices.Contains(next, s) {
			s.closeAll()
		}
	}
	b.servers = next
}

// SetUsable says whether connections may go to a server. It ignores servers that are not in the
// list.
func (b *Balancer) SetUsable(address string, usable bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.find(address)
	if s == nil {
		return
	}
	s.unusable = !usable
	if !slices.ContainsFunc(b.servers, func(s *server) bool { return !s.unusable }) {
		return // without a usable server, the clients would only come back to the same ones
	}
	for _, s := range b.servers {
		if s.unusable {
			s.closeAll()
		}
	}
}

// Select limits the connections to admitted servers. It closes all others.
func (b *Balancer) Select() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.selective = true
	for _, s := range b.servers {
		if !s.admitted {
			s.closeAll()
		}
	}
}

// Admit says whether a server is admitted. It ignores servers that are not in the list. Servers that are
// added to the list are not admitted at first.
func (b *Balancer) Admit(address string, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.find(address)
	if s == nil {
		return
	}
	s.admitted = admitted
	if b.refuses(s) {
		s.closeAll()
	}
}

// refuses reports whether a server must not get connections. The caller holds b.mu.
func (b *Balancer) refuses(s *server) bool { return b.selective && !s.admitted }

// Servers returns the addresses of the servers.
func (b *Balancer) Servers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, s := range b.servers {
		out = append(out, s.address)
	}
	return out
}

func (b *Balancer) find(address string) *server {
	if i := slices.IndexFunc(b.servers, func(s *server) bool { return s.address == address }); i >= 0 {
		return b.servers[i]
	}
	return nil
}

func (s *server) closeAll() {
	for conn := range s.conns {
		_ = conn.Close()
	}
	clear(s.conns)
}

// Serve forwards the connections that l accepts until ctx ends or l fails. It closes l, and returns
// when all connections are closed. It returns nil if ctx has ended.
func (b *Balancer) Serve(ctx context.Context, l net.Listener) error {
	l = netutil.LimitListener(l, maxConnections)
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	for {
		client, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = client.Close()
			}
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			b.log.Warn("Load balancer cannot accept a connection", "address", l.Addr(), "err", err)
			select {
			case <-ctx.Done():
			case <-b.clock.After(acceptPause):
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("load balancer at %s: %w", l.Addr(), err)
		}
		open.Go(func() { b.forward(ctx, client) })
	}
}

// forward connects a client with a server, and copies bytes between them until one of them closes
// its connection.
func (b *Balancer) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	upstream, done := b.connect(ctx)
	if upstream == nil {
		return
	}
	defer done()
	both, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// When one side ends, close both, because HTTPS does not use half-closed connections.
	defer context.AfterFunc(both, func() { _, _ = client.Close(), upstream.Close() })()
	defer context.AfterFunc(ctx, func() {
		b.drain(both, upstream)
		cancel()
	})()
	var up sync.WaitGroup
	up.Go(func() {
		defer cancel()
		_, _ = io.Copy(upstream, client)
	})
	_, _ = io.Copy(client, upstream)
	cancel()
	up.Wait()
}

// connect connects to the next server that accepts a connection. It returns nil if no server does in
// time. The caller must call done when the connection has ended.
func (b *Balancer) connect(ctx context.Context) (conn net.Conn, done func()) {
	for end := b.clock.Now().Add(b.patience); ; {
		if conn, done = b.try(ctx); conn != nil || !b.clock.Now().Before(end) {
			return conn, done
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-b.clock.After(retryPause):
		}
	}
}

// try is one attempt of connect.
func (b *Balancer) try(ctx context.Context) (conn net.Conn, done func()) {
	for _, s := range b.order() {
		conn, err := dialer().DialContext(ctx, "tcp", s.address)
		if err != nil {
			continue
		}
		if done, ok := b.enter(s, conn); ok {
			return conn, done
		}
		_ = conn.Close()
	}
	return nil, nil
}

// order returns the servers in the order in which a new connection tries them: the usable ones
// first, in turn.
func (b *Balancer) order() []*server {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.servers) == 0 {
		return nil
	}
	b.turn = (b.turn + 1) % len(b.servers)
	out := slices.DeleteFunc(slices.Concat(b.servers[b.turn:], b.servers[:b.turn]), b.refuses)
	slices.SortStableFunc(out, func(x, y *server) int {
		switch {
		case x.unusable == y.unusable:
			return 0
		case x.unusable:
			return 1
		}
		return -1
	})
	return out
}

// enter records a connection to a server, so that it is closed when the server must not be used any
// more. ok is false if the server has left the list or is refused meanwhile.
func (b *Balancer) enter(s *server, conn net.Conn) (leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.servers, s) || b.refuses(s) {
		return nil, false
	}
	s.conns[conn] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.conns, conn)
		_ = conn.Close()
	}, true
}

func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout: dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: probeAfter, Interval: probeInterval, Count: int(deadAfter / probeInterval),
		},
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			ctl := c.Control(func(fd uintptr) {
				// Keep-alive probes are not sent while bytes are unacknowledged; this limits that
				// time.
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
			})
			return errors.Join(ctl, err)
		},
	}
}
