// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/apiserver/config"
)

func TestInheritedSockets(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		fail bool
	}{
		"none":            {nil, false},
		"another process": {map[string]string{"LISTEN_FDS": "1", "LISTEN_PID": strconv.Itoa(os.Getpid() + 1)}, false},
		"not a number":    {map[string]string{"LISTEN_FDS": "x"}, true},
		"negative":        {map[string]string{"LISTEN_FDS": "-1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inherit(func(k string) string { return tc.env[k] })
			if (err != nil) != tc.fail || got.stored != nil || len(got.others) > 0 {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestOpen checks that systemd gets the listener, and that the listener that it has kept is used again, unless
// the address has changed.
func TestOpen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	receives := func(want string) {
		t.Helper()
		message := make([]byte, 100)
		if n, _, err := systemd.ReadFrom(message); err != nil || !strings.HasPrefix(string(message[:n]), want) {
			t.Errorf("message %q, %v, want %s", message[:n], err, want)
		}
	}
	first, err := (&inheritedSockets{}).open(t.Context(), "127.0.0.1:0", net.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	receives("FDSTORE=1\n")
	again, err := (&inheritedSockets{stored: first}).open(t.Context(), first.Addr().String(), net.ListenConfig{})
	if err != nil || again != first {
		t.Errorf("%v, %v", again, err)
	}
	other, err := (&inheritedSockets{stored: first}).open(t.Context(), "127.0.0.1:0", net.ListenConfig{})
	if err != nil || other == first {
		t.Fatal(other, err)
	}
	defer other.Close()
	receives("FDSTOREREMOVE=1\n")
	receives("FDSTORE=1\n")
}

// TestSharedPort checks that two listeners can share a port if both set SO_REUSEPORT.
func TestSharedPort(t *testing.T) {
	listen := func(address string, cfg config.Serving) (net.Listener, error) {
		lc := net.ListenConfig{Control: shareSocket(&cfg)}
		return lc.Listen(t.Context(), "tcp", address)
	}
	shared := config.Serving{PermitAddressSharing: true, PermitPortSharing: true}
	first, err := listen("127.0.0.1:0", shared)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := listen(first.Addr().String(), shared)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if third, err := listen(first.Addr().String(), config.Serving{}); err == nil {
		third.Close()
		t.Error("one that does not permit it listens as well")
	}
}
