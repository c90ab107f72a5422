// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/balancer"
	"keelson.dev/keelson/pkg/fdstore"
)

// fakeSystemd receives the messages of this process.
type fakeSystemd struct {
	*testing.T
	*net.UnixConn
}

func newSystemd(t *testing.T) *fakeSystemd {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	return &fakeSystemd{t, conn}
}

// next returns the next message, without its common part, and the socket in it.
func (s *fakeSystemd) next() (name string, f *os.File) {
	s.Helper()
	message, rights := make([]byte, 200), make([]byte, 100)
	n, m, _, _, err := s.ReadMsgUnix(message, rights)
	if err != nil {
		s.Fatal(err)
	}
	name = strings.TrimSpace(string(message[:n]))
	name, stored := strings.CutPrefix(name, "FDSTORE=1\nFDPOLL=0\nFDNAME=")
	if !stored {
		return name, nil
	}
	parsed, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(parsed) != 1 {
		s.Fatal(parsed, err)
	}
	fds, err := unix.ParseUnixRights(&parsed[0])
	if err != nil || len(fds) != 1 {
		s.Fatal(fds, err)
	}
	return name, os.NewFile(uintptr(fds[0]), name)
}

// pair returns both ends of a connection to l.
func pair(t *testing.T, l net.Listener) (near, far *net.TCPConn) {
	t.Helper()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// TestSockets checks that the next process of the agent gets the listener and the connections of the last one
// from systemd, in whatever order, and that halves of connections and foreign sockets are closed.
func TestSockets(t *testing.T) {
	systemd := newSystemd(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, accepted := pair(t, l)
	dialled, server := pair(t, l)
	waiting, early := pair(t, l)
	orphan, lost := pair(t, l)
	keep := keeper()
	for _, c := range []balancer.Connection{{Client: accepted, Server: dialled, Release: "v1.37.2+keelson.0.3.0-rc.1"},
		{Client: early}} {
		if err := keep(c); err != nil {
			t.Fatal(err)
		}
	}
	var stored []fdstore.File
	for range 3 {
		name, f := systemd.next()
		stored = append([]fdstore.File{{Name: name, File: f}}, stored...) // the last one first, as systemd does
	}
	for name, socket := range map[string]interface{ File() (*os.File, error) }{
		"api": l.(*net.TCPListener), "1-1-server": lost, "other": lost,
	} {
		f, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, fdstore.File{Name: name, File: f})
	}
	_ = lost.Close()
	_, _, _ = accepted.Close(), dialled.Close(), early.Close()

	s, err := openSockets(t.Context(), slog.New(slog.DiscardHandler), stored)
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	for range 5 { // all but the listener
		if message, _ := systemd.next(); !strings.HasPrefix(message, "FDSTOREREMOVE=1\nFDNAME=") {
			t.Errorf("message %q", message)
		}
	}
	if s.listener.Addr().String() != l.Addr().String() || len(s.connections) != 2 {
		t.Fatalf("listener %s, %d connections", s.listener.Addr(), len(s.connections))
	}
	for _, c := range s.connections {
		if c.Server != nil {
			passes(t, c.Client, client)
			passes(t, c.Server, server)
			if c.Release != "v1.37.2+keelson.0.3.0-rc.1" {
				t.Errorf("release %q", c.Release)
			}
			_ = c.Server.Close()
		} else {
			passes(t, c.Client, waiting)
		}
		_ = c.Client.Close()
	}
	if _, err := orphan.Read(make([]byte, 1)); err == nil {
		t.Error("half of a connection is open")
	}
}

// passes checks that two sockets are the ends of one connection.
func passes(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(to, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestStops checks in which jobs of systemd the agent has no successor.
func TestStops(t *testing.T) {
	for jobs, want := range map[string]bool{
		"": false, // a signal: systemd starts it again
		"12 keelson-agent.service restart running":                                        false,
		"13 keelson-kubelet.service stop running\n12 keelson-agent.service stop running":  true,
		"13 keelson-kubelet.service stop running\n12 keelson-agent.service start waiting": false,
	} {
		if got := stops(jobs, "keelson-agent.service"); got != want {
			t.Errorf("%q: %t", jobs, got)
		}
	}
}
