// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// firstInherited is the first inherited file descriptor (sd_listen_fds(3)).
const firstInherited = 3

// inheritedSockets returns the inherited listening sockets: LISTEN_FDS of them, beginning with
// descriptor 3. It returns none if LISTEN_PID is the ID of another process.
func inheritedSockets(getenv func(string) string) ([]net.Listener, error) {
	if pid := getenv("LISTEN_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	s := getenv("LISTEN_FDS")
	if s == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("inherited sockets: LISTEN_FDS is %q", s)
	}
	var out []net.Listener
	for fd := firstInherited; fd < firstInherited+n; fd++ {
		// The conversion does not overflow, because n has been checked above.
		file := os.NewFile(uintptr(fd), "inherited-"+strconv.Itoa(fd))
		l, err := net.FileListener(file)
		if err != nil {
			return nil, fmt.Errorf("inherited socket %d: %w", fd, err)
		}
		if err := file.Close(); err != nil { // closed, because the listener has a duplicate of the descriptor
			return nil, fmt.Errorf("inherited socket %d: %w", fd, err)
		}
		out = append(out, l)
	}
	return out, nil
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
