// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// balanced is the maximum number of open connections of a balancer.
	balanced = 10_000
	// dialPatience is how long the balancer waits for a server to accept a connection.
	dialPatience = time.Second
)

// balancer forwards TCP connections to servers in turn. It skips a server that does not accept the
// connection. If no server accepts it, the balancer closes the client's connection. It does not
// interpret the traffic, so clients see the certificates of the servers.
type balancer struct {
	servers []string
	turn    atomic.Uint32
	log     *slog.Logger
}

// startBalancer starts a balancer that forwards connections to the cluster's API servers until
// s.alive ends. It listens at the cluster's address, and on the socket machine, which has the
// machine's loopback address.
func (s *supervisor) startBalancer(machine *os.File) error {
	b := &balancer{log: s.deps.Log}
	for _, r := range s.cfg.replicas() {
		b.servers = append(b.servers, net.JoinHostPort(r.bind, strconv.Itoa(controlPort)))
	}
	outer, err := net.FileListener(machine)
	if err != nil {
		return err
	}
	inner, err := (&net.ListenConfig{}).Listen(s.alive, "tcp",
		net.JoinHostPort(s.cfg.IPFamily.primary().control.String(), strconv.Itoa(controlPort)))
	if err != nil {
		return err
	}
	for _, l := range []net.Listener{outer, inner} {
		s.tasks.Go(func() { b.serve(s.alive, netutil.LimitListener(l, balanced)) })
	}
	return nil
}

// serve forwards the connections that l accepts until ctx ends.
func (b *balancer) serve(ctx context.Context, l net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		client, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				b.log.Error("Load balancer of the API servers ended", "address", l.Addr(), "err", err)
			}
			return
		}
		open.Go(func() { b.join(ctx, client) })
	}
}

// join connects a client with the next API server that accepts a connection, and copies bytes
// between them.
func (b *balancer) join(ctx context.Context, client net.Conn) {
	defer client.Close()
	server := b.dial(ctx)
	if server == nil {
		return
	}
	defer server.Close()
	ctx, done := context.WithCancel(ctx)
	defer done()
	// When the client, the server or the cluster ends, close both connections, because HTTPS does
	// not use half-closed connections.
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var up sync.WaitGroup
	up.Go(func() {
		defer done()
		_, _ = io.Copy(server, client)
	})
	_, _ = io.Copy(client, server)
	done()
	up.Wait()
}

// dial connects to the next API server that accepts a connection. It returns nil if no server does.
func (b *balancer) dial(ctx context.Context) net.Conn {
	first := int(b.turn.Add(1) % uint32(len(b.servers)))
	for i := range b.servers {
		address := b.servers[(first+i)%len(b.servers)]
		conn, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn
		}
	}
	return nil
}
