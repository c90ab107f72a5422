// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/fdstore"
	"keelson.dev/keelson/pkg/machine/config"
)

// storedListener is the name under which systemd keeps the listener of the load balancer.
const storedListener = "api"

// Both sockets of a connection have the same name, followed by one of these. After releaseMark, the name has the
// release of the agent that has connected to the server.
const (
	clientEnding = "-client"
	serverEnding = "-server"
	releaseMark  = "@"
)

// sockets are the sockets of the load balancer. systemd keeps them while the agent is restarted, so that new
// connections wait and others stay open.
type sockets struct {
	listener    net.Listener
	connections []balancer.Connection
}

// openSockets returns what systemd has kept of an earlier process. If it has kept no listener, it opens one.
func openSockets(ctx context.Context, log *slog.Logger, inherited []fdstore.File) (*sockets, error) {
	s := &sockets{}
	halves := map[string]*balancer.Connection{}
	for _, f := range inherited {
		if err := s.take(f, halves); err != nil {
			log.Warn("Closed a socket that systemd has kept", "name", f.Name, "err", err)
		}
	}
	for _, c := range halves {
		if c.Client != nil {
			s.connections = append(s.connections, *c)
		} else {
			_ = c.Server.Close() // the client's socket could not be kept
		}
	}
	if s.listener != nil {
		return s, nil
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(config.AgentPort))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s.listener = l
	if err := fdstore.Store(storedListener, l.(*net.TCPListener)); err != nil {
		log.Warn("systemd does not keep the listener", "err", err) // connections are refused during restarts
	}
	return s, nil
}

// take takes a socket. halves has the connections by name.
func (s *sockets) take(f fdstore.File, halves map[string]*balancer.Connection) error {
	defer f.Close() // the package net makes a copy
	if f.Name == storedListener {
		l, err := net.FileListener(f.File)
		s.listener = l
		return err
	}
	// Otherwise the connection would not end when this process closes it.
	if err := fdstore.Remove(f.Name); err != nil {
		return err
	}
	conn, err := net.FileConn(f.File)
	if err != nil {
		return err
	}
	name, isClient := strings.CutSuffix(f.Name, clientEnding)
	name, isServer := strings.CutSuffix(name, serverEnding)
	if isClient == isServer {
		_ = conn.Close()
		return fmt.Errorf("%s: %w", f.Name, errForeign)
	}
	if halves[name] == nil {
		_, release, _ := strings.Cut(name, releaseMark)
		halves[name] = &balancer.Connection{Release: release}
	}
	if isClient {
		halves[name].Client = conn
	} else {
		halves[name].Server = conn
	}
	return nil
}

var errForeign = errors.New("not a socket of the load balancer")

// keeper returns a function that lets systemd keep a connection for the next process of the agent.
func keeper() func(balancer.Connection) error {
	var last atomic.Int64
	return func(c balancer.Connection) error {
		// Sockets of an earlier process may still be there, so the name has the ID of this one.
		name := fmt.Sprintf("%d-%d%s%s", os.Getpid(), last.Add(1), releaseMark, c.Release)
		// The server's socket first: if systemd keeps only that, the next process closes it. A client without a
		// server would get another server in the middle of its connection.
		if c.Server != nil {
			if err := store(name+serverEnding, c.Server); err != nil {
				return err
			}
		}
		return store(name+clientEnding, c.Client)
	}
}

// store lets systemd keep a socket.
func store(name string, conn net.Conn) error {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return errForeign
	}
	return fdstore.Store(name, socket)
}

// untilEnd returns a context that ends with ctx. Its cause is balancer.ErrStopped if systemd stops the agent and does
// not start it again: systemd then closes what it would keep, in the middle of requests.
func untilEnd(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	until, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
		defer cancel()
		out, err := exec.CommandContext(limited, "systemctl", "list-jobs", "--plain", "--no-legend", "--full").Output()
		if err != nil {
			log.Warn("systemd does not say whether it restarts the agent", "err", err)
		}
		if stops(string(out), unit(agentName)) {
			log.Info("Agent stopped without a restart, closing its connections")
			end(balancer.ErrStopped)
		}
		end(context.Cause(ctx))
	})
	return until, func() { stop(); end(nil) }
}

// stops reports whether lines with the number, the unit, and the type of each job of systemd have a job that stops a
// unit. To restart it, systemd has one of another type.
func stops(lines, unit string) bool {
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == unit && fields[2] == "stop" {
			return true
		}
	}
	return false
}
