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

// Limits bound the resources that clients and endpoints may hold.
type Limits struct {
	// Connections are the open connections of all clients and of one client, on both ports together.
	Connections, ClientConnections int
	// Requests are the concurrent requests of all clients, of one client, and of all requests to
	// the Services of one namespace.
	Requests, ClientRequests, NamespaceRequests int
	// Header is how long a TLS handshake or the header of a request may take.
	Header time.Duration
	// Idle is how long a connection is kept between requests.
	Idle time.Duration
	// Stall is how long a client may take to send the next bytes, or to read bytes that were sent
	// to it. A body must also arrive at minRate on average.
	Stall time.Duration
	// Silence is how long a stream may exchange no data: an answer that has begun, an upgraded
	// connection, or gRPC.
	Silence time.Duration
	// Answer is how long an endpoint may take to begin its answer.
	Answer time.Duration
}

const (
	// Memory of a connection, and of a request whose client sends and reads as slowly as the limits
	// allow: buffers for TLS, HTTP/2 windows and copying, goroutines and headers. TestMemory
	// measures it.
	connectionMemory, requestMemory = 64 << 10, 256 << 10
	maxConnections, maxRequests     = 16384, 8192
	minRate                         = 500 // minimum average rate of a request's body in bytes per second
)

// DefaultLimits returns limits for a process that may use the given number of bytes: half of it for
// connections and half for requests.
func DefaultLimits(memory int64) Limits {
	connections := int(min(memory/2/connectionMemory, maxConnections))
	requests := int(min(memory/2/requestMemory, maxRequests))
	return Limits{
		Connections: connections, ClientConnections: max(connections/8, 1),
		Requests: requests, ClientRequests: max(requests/8, 1), NamespaceRequests: max(requests/2, 1),
		Header: 10 * time.Second, Idle: time.Minute, Stall: 30 * time.Second, Silence: time.Hour, Answer: time.Minute,
	}
}

// shares counts units in use, in total and by holder.
type shares[K comparable] struct {
	max, each int

	mu   sync.Mutex
	all  int
	held map[K]int // units by holder; holders without units are removed
}

func newShares[K comparable](all, each int) *shares[K] {
	return &shares[K]{max: all, each: each, held: map[K]int{}}
}

// take takes one unit for a holder. If ok is false, full reports the reason: either all units are
// in use, or the holder has used up its share.
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

// give gives back one unit that a holder took.
func (s *shares[K]) give(holder K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.held[holder]--; s.held[holder] == 0 {
		delete(s.held, holder)
	}
}

// client returns the network that counts as one client: an IPv4 address, or an IPv6 /64, because
// IPv6 hosts usually have a whole /64.
func client(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // all clients without a valid address count as one client
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

// listener accepts connections up to the limits.
type listener struct {
	net.Listener
	p *Proxy
}

// Accept implements net.Listener. It closes connections beyond the limits.
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

// connection is a client's connection. It counts until it is closed.
type connection struct {
	net.Conn
	release func()

	done, cancelled atomic.Int64 // numbers of HTTP/2 requests that were completed and cancelled
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite shuts down the sending side. The HTTP server and upgraded connections call it.
func (c *connection) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite shuts down the sending side of a connection that supports it.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// cancelsFreely is how many requests a client may cancel on a connection before the ratio of
// cancelled to completed requests is limited.
const cancelsFreely = 100

// ended counts a finished request. It closes the connection of a client that cancels most of its
// requests before their answers begin, because such a request costs the endpoint more than the
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

// queued returns the number of sent bytes that the client has not acknowledged.
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
