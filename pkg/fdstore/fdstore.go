// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fdstore lets systemd keep the sockets of a program while it restarts the program.
//
// A program stores sockets under a name (Store). The next process of the same unit gets them (Inherited):
// connections to a stored listener wait meanwhile, and a stored connection stays open. systemd closes them
// when the unit is stopped. The unit must set FileDescriptorStoreMax; systemd closes sockets beyond it.
//
// systemd keeps its copies of the sockets. A connection ends only when the program has removed the name, too.
package fdstore

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// first is the number of the first file descriptor that systemd passes to a program (sd_listen_fds(3)).
const first = 3

var errNoSystemd = errors.New("systemd has not started this program")

// Store passes a socket to systemd.
func Store(name string, socket syscall.Conn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	ctl := raw.Control(func(fd uintptr) {
		// systemd must not remove a connection that the peer has closed: the other half of a forwarded one
		// would remain.
		err = send("FDSTORE=1\nFDPOLL=0\nFDNAME="+name+"\n", unix.UnixRights(int(fd)))
	})
	return errors.Join(ctl, err)
}

// Remove makes systemd close its copies of all sockets with a name.
func Remove(name string) error { return send("FDSTOREREMOVE=1\nFDNAME="+name+"\n", nil) }

// send sends a message to systemd.
func send(message string, rights []byte) error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return errNoSystemd
	}
	// The package net does not send file descriptors through a socket for datagrams.
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }() // the message has been sent
	return unix.Sendmsg(socket, []byte(message), rights, &unix.SockaddrUnix{Name: address}, 0)
}

// File is a socket that the program has inherited.
type File struct {
	Name string
	*os.File
}

// Inherited returns the sockets that systemd has kept for this process. It must be called once. The caller
// closes the files.
func Inherited() []File {
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil
	}
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	var out []File
	for i := range n {
		name := "" // an old systemd passes no names
		if i < len(names) {
			name = names[i]
		}
		unix.CloseOnExec(first + i)
		out = append(out, File{name, os.NewFile(uintptr(first+i), name)})
	}
	return out
}
