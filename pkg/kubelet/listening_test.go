// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"net"
	"os"
	"testing"
)

func TestListenersOfTheKernelsTable(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	f, err := os.Open("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	open := map[int32]bool{}
	listeners(f, open)
	if port := int32(l.Addr().(*net.TCPAddr).Port); !open[port] {
		t.Errorf("listener at port %d is not seen", port)
	}
	if port := int32(client.LocalAddr().(*net.TCPAddr).Port); open[port] {
		t.Errorf("a connection from port %d is taken for a listener", port)
	}
}
