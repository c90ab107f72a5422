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
//     connect to another server. So are those to a server that is not usable while another one is. Each is
//     closed as soon as no request is in the middle of it, and all of them after two seconds.
//   - Connections to a machine whose link is cut are closed within seconds, also if nothing is sent.
//   - After SetAge, older servers get no new connections as long as a server that is not older works.
//   - When a balancer ends, it hands all connections over to the next one, if its caller can do that
//     (HandOver). No byte is lost, and neither side notices more than a delay. Otherwise, or if there will
//     be no next one (ErrStopped), it closes them in the same way.
//   - Connections that were handed over follow the same rules as others, except that LeaveOlder spares
//     those that a balancer of another release has opened.
//   - The number of open connections is limited. More clients wait in the listener's queue.
//
// The package does not interpret the traffic: clients see the certificates of the servers. It does
// not find servers and does not check their health; its callers do.
package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

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
	// keep receives the connections when the balancer ends. It may be nil.
	keep func(Connection) error
	// release is that of this balancer, in connections that are handed over.
	release string
	// limit is the maximum number of open connections of a listener.
	limit int
}

// server is an API server in the list of a balancer. Its fields are guarded by Balancer.mu.
type server struct {
	address  string
	unusable bool
	admitted bool
	age      Age
	// conns has the open connections to the server. The value is true if a balancer of this release has opened it.
	conns map[net.Conn]bool
}

// Age says how the release of a server compares with that of its clients.
type Age int

// The ages of a server, from the best one to the worst.
const (
	NotOlder Age = iota + 1
	AgeUnknown
	Older
)

// rank returns a number by which servers are sorted for new connections. The lowest one is the best.
func (s *server) rank() Age {
	if s.unusable {
		return Older + 1
	}
	return s.age
}

// New returns a balancer without servers.
func New(clk clock.Clock, log *slog.Logger) *Balancer {
	return &Balancer{clock: clk, log: log, patience: patience, limit: maxConnections}
}

// SetServers replaces the list of servers. Each is HOST:PORT. New servers are usable. Servers that
// are in both lists keep their connections and are usable or not as before. The connections to others are
// drained.
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
			s = &server{address: a, age: AgeUnknown, conns: map[net.Conn]bool{}}
		}
		next = append(next, s)
	}
	for _, s := range b.servers {
		if !slices.Contains(next, s) {
			b.drainAll(s)
		}
	}
	b.servers = next
}

// SetUsable says whether connections may go to a server. If not, they are drained, unless no server is usable.
// It ignores servers that are not in the list.
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
			b.drainAll(s)
		}
	}
}

// SetAge says how old the release of a server is. It ignores servers that are not in the list. Open
// connections stay.
func (b *Balancer) SetAge(address string, age Age) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.find(address); s != nil {
		s.age = age
	}
}

// LeaveOlder closes idle connections to older servers, if one that is not older is usable. They were opened
// when there was none. It does not close connections that a balancer of another release has opened: their
// clients may be as old as the server.
func (b *Balancer) LeaveOlder() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.ContainsFunc(b.servers, func(s *server) bool { return s.rank() == NotOlder && !b.refuses(s) }) {
		return
	}
	for _, s := range b.servers {
		if s.age != Older {
			continue
		}
		for conn, own := range s.conns {
			if own && idle(conn) {
				_ = conn.Close()
				delete(s.conns, conn)
			}
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

// drainAll closes the connections to a server without cutting off answers. A server that has left the list may work:
// API servers that do not hear from it remove it. The caller holds b.mu.
func (b *Balancer) drainAll(s *server) {
	for conn := range s.conns {
		go func() {
			b.drain(context.Background(), conn)
			_ = conn.Close()
		}()
	}
	clear(s.conns)
}

func (s *server) closeAll() {
	for conn := range s.conns {
		_ = conn.Close()
	}
	clear(s.conns)
}

// Serve forwards the connections that l accepts, and those that another balancer has handed over, until ctx
// ends or l fails. It closes l, and returns when all connections are closed or handed over. It returns nil
// if ctx has ended.
func (b *Balancer) Serve(ctx context.Context, l net.Listener, inherited ...Connection) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	free := make(chan struct{}, max(b.limit, len(inherited)))
	for _, c := range inherited {
		free <- struct{}{}
		open.Go(func() {
			b.resume(ctx, c)
			<-free
		})
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case free <- struct{}{}:
		}
		client, err := l.Accept()
		if err == nil {
			open.Go(func() {
				b.forward(ctx, Connection{Client: client})
				<-free
			})
			continue
		}
		<-free
		if ctx.Err() != nil {
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
		return fmt.Errorf("load balancer at %s: %w", l.Addr(), err)
	}
}

// forward connects a client with a server, and copies bytes between them until one of them closes
// its connection.
func (b *Balancer) forward(ctx context.Context, c Connection) {
	defer c.Client.Close()
	server, done := b.connect(ctx)
	if server == nil {
		b.handOver(ctx, c)
		return
	}
	defer done()
	c.Server, c.Release = server, b.release
	b.join(ctx, c)
}

// join copies bytes between a client and a server until one of them closes its connection, or until ctx
// has ended and the connection is handed over or idle. The caller closes both.
func (b *Balancer) join(ctx context.Context, c Connection) {
	client, upstream := c.Client, c.Server
	both, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// When one side ends, close both, because HTTPS does not use half-closed connections.
	closing := context.AfterFunc(both, func() { _, _ = client.Close(), upstream.Close() })
	defer closing()
	defer context.AfterFunc(ctx, func() {
		if b.handsOver(ctx) {
			b.pause(both, client, upstream)
		} else {
			b.drain(both, upstream)
		}
		cancel()
	})()
	var up sync.WaitGroup
	pausedUp := false
	up.Go(func() { pausedUp = transfer(upstream, client, cancel) })
	pausedDown := transfer(client, upstream, cancel)
	up.Wait()
	if pausedUp && pausedDown && closing() {
		b.handOver(ctx, c)
	}
}

// transfer copies bytes until one side ends, and then calls end. It returns true, and does not call end, if
// it was paused. All bytes that it has read are written then.
func transfer(to io.Writer, from io.Reader, end func()) (paused bool) {
	// The wrappers prevent splice(2), which needs two pipes for each connection.
	_, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	end()
	return false
}

// connect connects to the next server that accepts a connection. It returns nil if no server does in
// time, or if ctx has ended. The caller must call done when the connection has ended.
func (b *Balancer) connect(ctx context.Context) (conn net.Conn, done func()) {
	for end := b.clock.Now().Add(b.patience); ; {
		last := !b.clock.Now().Before(end)
		if conn, done = b.try(ctx, b.order(last)); conn != nil || last {
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
func (b *Balancer) try(ctx context.Context, servers []*server) (conn net.Conn, done func()) {
	for _, s := range servers {
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

// order returns the servers in the order in which a new connection tries them: those of the lowest rank
// first, in turn. Older servers are left out if there is a better one, unless this is the last attempt.
func (b *Balancer) order(last bool) []*server {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.servers) == 0 {
		return nil
	}
	b.turn = (b.turn + 1) % len(b.servers)
	out := slices.DeleteFunc(slices.Concat(b.servers[b.turn:], b.servers[:b.turn]), b.refuses)
	slices.SortStableFunc(out, func(x, y *server) int { return cmp.Compare(x.rank(), y.rank()) })
	if len(out) > 0 && out[0].rank() < Older && !last {
		out = slices.DeleteFunc(out, func(s *server) bool { return s.age == Older })
	}
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
	return b.record(s, conn, true), true
}

// record adds a connection to those of a server. The caller holds b.mu, and calls leave when the connection
// has ended.
func (b *Balancer) record(s *server, conn net.Conn, own bool) (leave func()) {
	s.conns[conn] = own
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.conns, conn)
		_ = conn.Close()
	}
}

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable: true, Idle: probeAfter, Interval: probeInterval, Count: int(deadAfter / probeInterval),
	}
}

func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: keepAlive(),
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
