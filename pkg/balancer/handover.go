// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"net"
	"time"
)

// Connection is a forwarded connection that one balancer hands over to the next.
type Connection struct {
	Client *net.TCPConn
	Server *net.TCPConn // nil if the balancer had not yet connected to a server
}

// HandOver makes Serve pass its open connections to keep when it ends, instead of closing them. keep must
// duplicate the sockets, because Serve closes its own. HandOver must be called before Serve.
func (b *Balancer) HandOver(keep func(Connection) error) { b.keep = keep }

// handOver passes a connection to the next balancer. server is nil if there is none yet.
func (b *Balancer) handOver(client, server net.Conn) {
	if b.keep == nil {
		return
	}
	var c Connection
	var ok bool
	if c.Client, ok = client.(*net.TCPConn); !ok {
		return
	}
	if server != nil {
		if c.Server, ok = server.(*net.TCPConn); !ok {
			return
		}
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
		b.forward(ctx, c.Client)
		return
	}
	defer c.Client.Close()
	defer c.Server.Close()
	done, ok := b.adopt(c.Server)
	if !ok {
		return
	}
	defer done()
	b.join(ctx, c.Client, c.Server)
}

// adopt records a connection to a server that was handed over. The server was admitted when it was opened;
// Admit and Select close it if that has changed. ok is false if the server has left the list.
func (b *Balancer) adopt(conn *net.TCPConn) (leave func(), ok bool) {
	// The package net has set its own interval when it took the socket.
	if err := conn.SetKeepAliveConfig(keepAlive()); err != nil || conn.RemoteAddr() == nil {
		return nil, false // the server has ended it meanwhile
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.find(conn.RemoteAddr().String())
	if s == nil {
		return nil, false
	}
	return b.record(s, conn, false), true
}
