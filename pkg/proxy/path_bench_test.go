// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/test/unshare"
)

const sinkPort = 9090

// BenchmarkPath compares the path from one pod to another through a service with the direct path,
// for few and for many services. It measures how fast connections are opened one after the other,
// and the throughput of one connection.
//
//	go test ./pkg/proxy -run - -bench Path
func BenchmarkPath(b *testing.B) {
	unshare.Need(b)
	for _, services := range []int{10, 10000, 40000} {
		n := newNode(b, newSpace(b))
		client, server := n.pod(), n.pod()
		server.sink()
		n.program(services, netip.AddrPortFrom(server.v4, sinkPort))
		for _, way := range []struct{ name, to string }{
			{"direct", fmt.Sprintf("%s:%d", server.v4, sinkPort)}, {"service", "10.96.255.1:80"},
		} {
			b.Run(fmt.Sprintf("services=%d/connect/%s", services, way.name), func(b *testing.B) { client.connect(b, way.to) })
			b.Run(fmt.Sprintf("services=%d/send/%s", services, way.name), func(b *testing.B) { client.send(b, way.to) })
		}
	}
}

// sink starts a server that reads and discards everything until the test ends.
func (p *pod) sink() {
	p.t.Helper()
	p.must(p.in(func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", sinkPort))
		if err != nil {
			return err
		}
		p.ends = append(p.ends, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
			}
		}()
		return nil
	}))
}

// program writes the table for a number of services with two endpoints each, and for one service
// with the given endpoint.
func (n *node) program(services int, to netip.AddrPort) {
	n.t.Helper()
	k, err := kernel.Open(kernel.Config{Family: ruleset.IPv4,
		Settings: kernel.Settings{MasqueradeBit: 14, Pods: kernel.ByRange}, NetNS: int(n.ns)})
	n.must(err)
	n.t.Cleanup(func() { _ = k.Close() })
	table := ruleset.NewTable(ruleset.IPv4)
	add := func(name string, vip netip.Addr, endpoints ...netip.AddrPort) {
		table.Set(ruleset.Name(name), &ruleset.Port{
			VIP: ruleset.Frontend{Addr: vip, Protocol: ruleset.TCP, Port: 80}, Cluster: ruleset.Pack(endpoints), Anywhere: true,
		})
	}
	for i := range services {
		pod := netip.AddrFrom4([4]byte{10, 245, byte(i >> 8), byte(i)})
		add(fmt.Sprint(i), netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), netip.AddrPortFrom(pod, 80),
			netip.AddrPortFrom(pod, 81))
	}
	add("real", netip.MustParseAddr("10.96.255.1"), to)
	pods, cidrs := netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.96.0.0/16")
	n.must(k.Replace(table.Take().Add, &kernel.Ranges{Pods: []netip.Prefix{pods}, Services: []netip.Prefix{cidrs}}))
}

// connect opens connections one after the other, and closes each with a reset.
func (s *space) connect(b *testing.B, to string) {
	s.must(s.in(func() error {
		for b.Loop() {
			c, err := net.Dial("tcp", to)
			if err != nil {
				return err
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
}

// send sends 1 MiB in each operation.
func (s *space) send(b *testing.B, to string) {
	c, err := s.dial("tcp", to, patience)
	s.must(err)
	defer c.Close()
	block := make([]byte, 1<<20)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		_, err := c.Write(block)
		s.must(err)
	}
}
