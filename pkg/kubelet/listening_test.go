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
	port := int32(l.Addr().(*net.TCPAddr).Port)
	look := func() bool {
		f, err := os.Open("/proc/self/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		open := map[int32]bool{}
		listeners(f, open)
		return open[port]
	}
	if !look() {
		t.Errorf("listener at port %d is not seen", port)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if look() {
		t.Errorf("port %d is seen after it was closed", port)
	}
}
