// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"net"
	"time"
)

// Connection is a forwarded connection that one balancer hands over to the next.
type Connection struct {
	Client net.Conn
	Server net.Conn // nil if the balancer had not yet connected to a server
	// Release is that of the balancer that has connected to the server, or empty.
	Release string
}

// ErrStopped is the cause of the end of Serve's context if no balancer follows. Connections are closed then.
var ErrStopped = errors.New("the load balancer is stopped")

// HandOver makes Serve pass its open connections to keep when it ends, instead of closing them. keep must
// duplicate the sockets, because Serve closes its own. release is that of this balancer. HandOver must be called
// before Serve.
func (b *Balancer) HandOver(release string, keep func(Connection) error) {
	b.release, b.keep = release, keep
}

// handsOver reports whether open connections are handed over, when ctx has ended.
func (b *Balancer) handsOver(ctx context.Context) bool {
	return b.keep != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrStopped)
}

// handOver passes a connection to the next balancer, if ctx has ended and there is one.
func (b *Balancer) handOver(ctx context.Context, c Connection) {
	if !b.handsOver(ctx) {
		return
	}
	if err := b.keep(c); err != nil {
		b.log.Warn("Load balancer closes a connection, because it cannot be handed over", "err", err)
	}
}

// pause ends the reads of a connection, and waits until what was read before is written, which ends both. It
// gives up after drainLimit: one side accepts nothing.
func (b *Balancer) pause(both context.Context, client, server net.Conn) {
	past := time.Unix(1, 0)
	_, _ = client.SetReadDeadline(past), server.SetReadDeadline(past) // they fail only for closed connections
	select {
	case <-both.Done():
	case <-b.clock.After(drainLimit):
	}
}

// resume goes on with a connection that another balancer has handed over.
func (b *Balancer) resume(ctx context.Context, c Connection) {
	if c.Server == nil {
		b.forward(ctx, c)
		return
	}
	defer c.Client.Close()
	defer c.Server.Close()
	done := b.adopt(ctx, c)
	if done == nil {
		b.handOver(ctx, c)
		return
	}
	defer done()
	b.join(ctx, c)
}

// adopt records the server of a connection that was handed over. While the server is refused, adopt waits as long as
// new connections do: after a restart, no server is admitted before it has been checked. It returns nil if the
// server is still refused then, if it has left the list, if the connection has ended, or if ctx has ended.
func (b *Balancer) adopt(ctx context.Context, c Connection) (leave func()) {
	tcp, ok := c.Server.(*net.TCPConn)
	// The package net has set its own interval when it took the socket.
	if !ok || tcp.SetKeepAliveConfig(keepAlive()) != nil || tcp.RemoteAddr() == nil {
		return nil // the server has ended it meanwhile
	}
	address := tcp.RemoteAddr().String()
	for end := b.clock.Now().Add(b.patience); ; {
		leave, refused := b.readmit(address, c)
		if !refused || !b.clock.Now().Before(end) {
			return leave
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.clock.After(retryPause):
		}
	}
}

// readmit records a connection to a server, unless the server has left the list or is refused.
func (b *Balancer) readmit(address string, c Connection) (leave func(), refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.find(address)
	if s == nil || b.refuses(s) {
		return nil, s != nil
	}
	return b.record(s, c.Server, c.Release == b.release), false
}
