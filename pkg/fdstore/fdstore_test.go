// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package fdstore_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/fdstore"
)

// printInherited makes this program print what it has inherited, instead of testing.
const printInherited = "FDSTORE_PRINT"

func TestMain(m *testing.M) {
	if os.Getenv(printInherited) != "" {
		for _, f := range fdstore.Inherited() {
			l, err := net.FileListener(f.File)
			if err != nil {
				fmt.Println(f.Name, err)
				continue
			}
			fmt.Println(f.Name, l.Addr())
		}
		return
	}
	m.Run()
}

// TestStore checks the messages to systemd, and that connections to a stored listener wait while the program
// does not run.
func TestStore(t *testing.T) {
	first := listen(t)
	t.Setenv("NOTIFY_SOCKET", "")
	if err := fdstore.Store("api", first); err == nil {
		t.Error("no error without systemd")
	}
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	if err := fdstore.Store("api", first); err != nil {
		t.Fatal(err)
	}
	message, rights := make([]byte, 100), make([]byte, 100)
	n, m, _, _, err := systemd.ReadMsgUnix(message, rights)
	if err != nil || string(message[:n]) != "FDSTORE=1\nFDPOLL=0\nFDNAME=api\n" {
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
	_ = first.Close()
	client, err := net.Dial("tcp", first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	if err := fdstore.Remove("api"); err != nil {
		t.Fatal(err)
	}
	n, _, _, _, err = systemd.ReadMsgUnix(message, rights)
	if err != nil || string(message[:n]) != "FDSTOREREMOVE=1\nFDNAME=api\n" {
		t.Fatalf("message %q, %v", message[:n], err)
	}
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestInherited checks that a process gets the sockets that were passed to it, and only those.
func TestInherited(t *testing.T) {
	one, two := listen(t), listen(t)
	var files []*os.File
	for _, l := range []*net.TCPListener{one, two} {
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	for pid, want := range map[string]string{
		"$$": fmt.Sprintf("a %s\nb %s\n", one.Addr(), two.Addr()), // of this shell and of the program
		"1":  "",
	} {
		cmd := exec.Command("sh", "-c", "LISTEN_PID="+pid+" LISTEN_FDS=2 LISTEN_FDNAMES=a:b exec "+os.Args[0])
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), printInherited+"=1"), files
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("LISTEN_PID=%s: %q, %v, want %q", pid, out, err, want)
		}
	}
}
