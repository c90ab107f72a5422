// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/test/unshare"
)

func TestLocal(t *testing.T) {
	s, err := Local(clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	loopback := slices.ContainsFunc(s.Addresses, func(a Address) bool {
		return a.Addr().IsLoopback() && a.Interface == "lo"
	})
	if s.HostName != host || s.Kernel == "" || !loopback {
		t.Errorf("host %q, kernel %q, addresses %v", s.HostName, s.Kernel, s.Addresses)
	}
	if space, err := s.Space(t.TempDir()); err != nil || space.Free == 0 || space.Total < space.Free || space.Type == 0 {
		t.Errorf("space %v, %v", space, err)
	}
	if !s.Writable(t.TempDir()) || s.Writable("/proc/does-not-exist") {
		t.Error("wrong files are writable")
	}
}

// TestListen checks that a port in use is distinguished from a port that this machine does not have.
func TestListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for network, address := range map[string]net.Addr{"tcp": l.Addr(), "udp": u.LocalAddr()} {
		if err := listen(t.Context(), network, address.String()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: error %v, want that the port is in use", network, err)
		}
		if err := listen(t.Context(), network, "127.0.0.1:0"); err != nil {
			t.Errorf("%s: %v", network, err)
		}
	}
	if err := listen(context.Background(), "tcp", "192.0.2.1:0"); err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("address of another machine: error %v", err)
	}
}

// TestMakeKind checks that the kernel makes what pod networks need, and that nothing is left of it.
func TestMakeKind(t *testing.T) {
	unshare.NeedRoot(t)
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	for _, kind := range []Kind{NetworkNamespace, VirtualEthernet, Bridge, VXLAN, PacketFilter} {
		if err := makeKind(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := net.InterfaceByName("probe"); err == nil {
		t.Error("the device probe is in the namespace of the machine")
	}
	if after, err := netns.Get(); err != nil || !after.Equal(before) {
		t.Errorf("the namespace is %v, was %v (%v)", after, before, err)
	}
}
