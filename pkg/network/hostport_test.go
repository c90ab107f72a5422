// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netns"

	"keelson.dev/keelson/test/unshare"
)

// TestHostPort checks that a host port can be reached from the node (at its loopback address), from
// another pod and from the pod itself. Meanwhile, the nftables tables that drop packets with forged
// source addresses are in place.
func TestHostPort(t *testing.T) {
	unshare.Need(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := New(Config{ConfDir: t.TempDir(), BinDir: realPlugins(t, self), CacheDir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler)})
	w := wanted{podCIDRs: prefixes("10.244.9.0/24"), mtu: 1400,
		guard: guard{pods: prefixes("10.244.9.0/24"), tunnel: true}}
	k, err := newKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	if err := enable(sysctls(w.podCIDRs)); err != nil {
		t.Fatal(err)
	}
	if err := k.applyGuard(w.guard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.applyGuard(guard{}) })
	if err := n.configure(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromFile(filepath.Join(n.cfg.ConfDir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	attach := func(id string, mappings ...any) *space {
		t.Helper()
		pod := newSpace(t)
		sandbox := &libcni.RuntimeConf{
			ContainerID: id, IfName: "eth0", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(pod.ns)),
			CapabilityArgs: map[string]any{"portMappings": mappings},
		}
		if _, err := n.cni().AddNetworkList(t.Context(), list, sandbox); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.cni().DelNetworkList(t.Context(), list, sandbox) })
		return pod
	}
	server := attach("server", map[string]any{"hostPort": 8080, "containerPort": 7, "protocol": "tcp"})
	client := attach("client")
	var listener net.Listener
	in(t, server.ns, func() (err error) {
		listener, err = net.Listen("tcp4", ":7")
		return err
	})
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			c.Close()
		}
	}()
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for name, from := range map[string]struct {
		ns netns.NsHandle
		to string
	}{
		"the node":       {own, "127.0.0.1:8080"},
		"another pod":    {client.ns, "10.244.9.1:8080"},
		"the pod itself": {server.ns, "10.244.9.1:8080"},
		"without it":     {client.ns, "10.244.9.2:7"},
	} {
		in(t, from.ns, func() error {
			c, err := net.DialTimeout("tcp4", from.to, 10*time.Second)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			defer c.Close()
			_, err = c.Read(make([]byte, 5))
			return err
		})
	}
}
