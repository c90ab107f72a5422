// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quietTime is how long nothing must have been sent through a connection until it counts as idle. A
	// server answers most requests sooner.
	quietTime = 200 * time.Millisecond
	// drainLimit is how long a balancer waits for the end of requests when it closes connections.
	drainLimit = 2 * time.Second
	drainPoll  = 20 * time.Millisecond
)

// drain waits until the connection with a server is idle, so that no request is in the middle of it. It
// gives up after drainLimit, or when ctx ends.
func (b *Balancer) drain(ctx context.Context, server net.Conn) {
	for began := b.clock.Now(); !idle(server) && b.clock.Since(began) < drainLimit; {
		select {
		case <-ctx.Done():
			return
		case <-b.clock.After(drainPoll):
		}
	}
}

// idle reports whether nothing has been sent or received for quietTime. The kernel knows that.
func idle(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true // it is closed
	}
	quiet := true
	_ = raw.Control(func(fd uintptr) { // fails if the connection is closed
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			quiet = min(info.Last_data_sent, info.Last_data_recv) >= uint32(quietTime.Milliseconds())
		}
	})
	return quiet
}
