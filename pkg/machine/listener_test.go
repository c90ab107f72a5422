// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStore checks that the agent passes its listener to systemd, and that connections to it wait while
// the agent does not run.
func TestStore(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := store(first); !errors.Is(err, errNoSystemd) {
		t.Errorf("without systemd: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	if err := store(first); err != nil {
		t.Fatal(err)
	}
	message, rights := make([]byte, 100), make([]byte, 100)
	n, m, _, _, err := systemd.ReadMsgUnix(message, rights)
	if err != nil || string(message[:n]) != "FDSTORE=1\nFDNAME=api\n" {
		t.Fatalf("message %q, %v", message[:n], err)
	}
	parsed, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(parsed) != 1 {
		t.Fatal(parsed, err)
	}
	fds, err := unix.ParseUnixRights(&parsed[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	kept := os.NewFile(uintptr(fds[0]), "kept")
	defer kept.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	second, err := net.FileListener(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	conn, err := second.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
