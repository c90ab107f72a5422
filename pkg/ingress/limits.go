// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound the resources that clients and endpoints may use.
type Limits struct {
	// Connections limits the open connections of all clients, ClientConnections those of one
	// client. Both ports count together.
	Connections, ClientConnections int
	// Requests limits the concurrent requests of all clients, ClientRequests those of one client, and
	// NamespaceRequests those to the Services of one namespace.
	Requests, ClientRequests, NamespaceRequests int
	// Header is the maximum duration of a TLS handshake, and of receiving a request's header.
	Header time.Duration
	// Idle is how long a connection without a request is kept open.
	Idle time.Duration
	// Stall is how long a client may take to send the next bytes, or to read bytes that were sent to
	// it. In addition, a body must arrive at minRate on average.
	Stall time.Duration
	// Silence is how long a stream may exchange no data. Streams are responses that have begun,
	// upgraded connections, and gRPC requests.
	Silence time.Duration
	// Answer is how long an endpoint may take to begin its response.
	Answer time.Duration
}

const (
	// The memory in bytes that one connection needs, and one request whose client sends and reads as
	// slowly as the limits allow: buffers for TLS, HTTP/2 windows and copying, goroutines and
	// headers. TestMemory measures it.
	connectionMemory, requestMemory = 64 << 10, 256 << 10
	maxConnections, maxRequests     = 16384, 8192
	minRate                         = 500 // minimum average rate of a request's body in bytes per second
)

// DefaultLimits returns limits for a process that may use the given number of bytes of memory: half
// of it for connections and half for requests.
func DefaultLimits(memory int64) Limits {
	connections := int(min(memory/2/connectionMemory, maxConnections))
	requests := int(min(memory/2/requestMemory, maxRequests))
	return Limits{
		Connections: connections, ClientConnections: max(connections/8, 1),
		Requests: requests, ClientRequests: max(requests/8, 1), NamespaceRequests: max(requests/2, 1),
		Header: 10 * time.Second, Idle: time.Minute, Stall: 30 * time.Second, Silence: time.Hour, Answer: time.Minute,
	}
}

// shares counts units, such as connections, that are in use: all of them, and those of each holder
// (a client or a namespace).
type shares[K comparable] struct {
	max, each int

	mu   sync.Mutex
	all  int
	held map[K]int // units by holder; holders without units are removed
}

func newShares[K comparable](all, each int) *shares[K] {
	return &shares[K]{max: all, each: each, held: map[K]int{}}
}

// take takes one unit, such as a connection, for a holder (a client or a namespace). If ok is
// false, it could not, and full reports why: if full is true, all units are in use; otherwise the
// holder has its maximum.
func (s *shares[K]) take(holder K) (ok, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.max {
		return false, true
	}
	if s.held[holder] >= s.each {
		return false, false
	}
	s.all++
	s.held[holder]++
	return true, false
}

// give returns a unit, such as a connection, that a holder has taken.
func (s *shares[K]) give(holder K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.held[holder]--; s.held[holder] == 0 {
		delete(s.held, holder)
	}
}

// client returns the network whose hosts count as one client: a single IPv4 address, or an IPv6
// /64, because an IPv6 host usually can use all addresses of a /64.
func client(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // clients without a valid address count together as one client
	}
	a := at.Addr().Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	prefix, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// listener accepts connections within the limits of the proxy.
type listener struct {
	net.Listener
	p *Proxy
}

// Accept implements net.Listener. It closes connections that exceed a limit.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := client(conn.RemoteAddr().String())
		ok, full := l.p.connections.take(from)
		if ok {
			return &connection{Conn: conn, release: sync.OnceFunc(func() { l.p.connections.give(from) })}, nil
		}
		reason := "client_connections"
		if full {
			reason = "connections"
		}
		l.p.metrics.refused(reason)
		_ = conn.Close()
	}
}

// connection is a connection of a client. It counts toward the limits until it is closed.
type connection struct {
	net.Conn
	release func()

	done, cancelled atomic.Int64 // numbers of completed and cancelled HTTP/2 requests
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite closes the sending side. The HTTP server and upgraded connections call it.
func (c *connection) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes the sending side of a connection, if the connection supports that.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// cancelsFreely is how many requests a client may cancel on a connection without a limit. After
// that, it may not cancel more requests than were completed.
const cancelsFreely = 100

// ended counts a request that has ended. It closes the connection if the client cancels most of its
// requests before their responses begin, because such a request costs the endpoint more than the
// client.
func (c *connection) ended(cancelled bool) (closed bool) {
	if !cancelled {
		c.done.Add(1)
		return false
	}
	if n := c.cancelled.Add(1); n <= cancelsFreely || n <= c.done.Load() {
		return false
	}
	_ = c.Conn.Close()
	return true
}

// queued returns how many sent bytes the client has not acknowledged.
func (c *connection) queued() int {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if raw.Control(func(fd uintptr) {
		if q, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = q
		}
	}) != nil {
		return 0
	}
	return n
}
