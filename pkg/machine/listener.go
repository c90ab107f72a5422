// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/machine/config"
)

// firstStored is the number of the first file descriptor that systemd passes to a program.
const firstStored = 3

// listen returns the listener of the load balancer. systemd keeps it while the agent is restarted: new
// connections then wait, instead of being refused.
func listen(ctx context.Context, d Deps) (net.Listener, error) {
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) && os.Getenv("LISTEN_FDS") != "0" {
		unix.CloseOnExec(firstStored)
		f := os.NewFile(firstStored, "listener")
		defer f.Close() // FileListener has a copy
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("listener that systemd has kept: %w", err)
		}
		return l, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(config.AgentPort)))
	if err != nil {
		return nil, err
	}
	if err := store(l); err != nil {
		d.Log.Warn("systemd does not keep the listener", "err", err) // connections are refused during restarts
	}
	return l, nil
}

var errNoSystemd = errors.New("systemd has not started this program")

// store passes a listener to systemd, which gives it to the next process of this unit.
func store(l net.Listener) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return errNoSystemd
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	// The package net does not send file descriptors through a socket for datagrams.
	notify, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(notify) }() // the message has been sent
	ctl := raw.Control(func(fd uintptr) {
		err = unix.Sendmsg(notify, []byte("FDSTORE=1\nFDNAME=api\n"), unix.UnixRights(int(fd)),
			&unix.SockaddrUnix{Name: socket}, 0)
	})
	return errors.Join(ctl, err)
}
