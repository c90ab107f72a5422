// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/fdstore"
)

// storedListener is the name under which systemd keeps the listener while the server is restarted.
const storedListener = "api"

// firstInherited is the first inherited file descriptor (sd_listen_fds(3)).
const firstInherited = 3

// inheritedSockets are listeners that a parent process has passed to the server.
type inheritedSockets struct {
	stored net.Listener   // the one that an earlier process of the server has stored, or nil
	others []net.Listener // to serve on as well
}

// inherit returns the inherited listening sockets: LISTEN_FDS of them, beginning with descriptor 3. It returns
// none if LISTEN_PID is the ID of another process.
func inherit(getenv func(string) string) (out inheritedSockets, err error) {
	if pid := getenv("LISTEN_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return out, nil
	}
	s := getenv("LISTEN_FDS")
	if s == "" {
		return out, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return out, fmt.Errorf("inherited sockets: LISTEN_FDS is %q", s)
	}
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	for i := range n {
		fd := firstInherited + i
		// The conversion does not overflow, because n has been checked above.
		file := os.NewFile(uintptr(fd), "inherited-"+strconv.Itoa(fd))
		l, err := net.FileListener(file)
		if err != nil {
			return out, fmt.Errorf("inherited socket %d: %w", fd, err)
		}
		if err := file.Close(); err != nil { // closed, because the listener has a duplicate of the descriptor
			return out, fmt.Errorf("inherited socket %d: %w", fd, err)
		}
		if i < len(names) && names[i] == storedListener {
			out.stored = l
		} else {
			out.others = append(out.others, l)
		}
	}
	return out, nil
}

// open returns the listener at an address. If systemd has started the server, it keeps the listener while
// the server is restarted, so that new connections wait instead of being refused.
func (s *inheritedSockets) open(ctx context.Context, address string, lc net.ListenConfig) (net.Listener, error) {
	if s.stored != nil {
		if s.stored.Addr().String() == address {
			return s.stored, nil
		}
		// The configuration has changed.
		if err := errors.Join(s.stored.Close(), fdstore.Remove(storedListener)); err != nil {
			return nil, err
		}
	}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.(*net.TCPListener); ok {
		// Without systemd, or if the unit does not allow it, connections are refused during a restart.
		_ = fdstore.Store(storedListener, tcp)
	}
	return l, nil
}

// shareSocket returns a function that sets the socket options with which other processes can listen
// on the same address, or nil if none is configured.
func shareSocket(cfg *config.Serving) func(network, address string, c syscall.RawConn) error {
	var options []int
	if cfg.PermitPortSharing {
		options = append(options, unix.SO_REUSEPORT)
	}
	if cfg.PermitAddressSharing {
		options = append(options, unix.SO_REUSEADDR)
	}
	if len(options) == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		controlled := c.Control(func(fd uintptr) {
			for _, o := range options {
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o, 1))
			}
		})
		return errors.Join(controlled, err)
	}
}
