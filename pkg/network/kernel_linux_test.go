// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/test/unshare"
)

// lab is a network in unnamed namespaces, which end with the test. It has two links joined by a
// router, nodes on these links, and one pod on each node.
type lab struct {
	t      *testing.T
	router *space
	nodes  []*labNode
}

// space is a network namespace.
type space struct {
	t  testing.TB
	ns netns.NsHandle
	h  *netlink.Handle
}

type labNode struct {
	node
	host, pod *space
	podIP     netip.Addr
}

// in runs f in the namespace, on an OS thread for it alone. If the thread cannot return to its
// original namespace, it ends.
func in(t testing.TB, ns netns.NsHandle, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func newSpace(t testing.TB) *space {
	t.Helper()
	s := &space{t: t}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		s.ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var err error
	if s.h, err = netlink.NewHandleAt(s.ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.h.Close(); s.ns.Close() })
	s.up("lo")
	in(t, s.ns, func() error {
		return enable([]string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"})
	})
	return s
}

func (s *space) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) link(name string) netlink.Link {
	s.t.Helper()
	l, err := s.h.LinkByName(name)
	s.must(err)
	return l
}

func (s *space) up(name string) { s.t.Helper(); s.must(s.h.LinkSetUp(s.link(name))) }

func (s *space) address(name string, addrs ...string) {
	s.t.Helper()
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		s.must(err)
		addr.Flags = unix.IFA_F_NODAD
		s.must(s.h.AddrAdd(s.link(name), addr))
	}
	s.up(name)
}

func (s *space) defaultRoute(via ...string) {
	s.t.Helper()
	for _, v := range via {
		s.must(s.h.RouteAdd(&netlink.Route{Gw: net.ParseIP(v)}))
	}
}

// cable connects two namespaces by a virtual link.
func cable(a, b *space, nameA, nameB string) {
	a.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nameA
	a.must(a.h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.ns)}))
}

func newLab(t *testing.T) *lab {
	t.Helper()
	unshare.Need(t)
	l := &lab{t: t, router: newSpace(t)}
	for i, addrs := range [][]string{{"10.50.0.1/24", "fd50::1/64"}, {"10.60.0.1/24", "fd60::1/64"}} {
		name := fmt.Sprintf("br%d", i)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		l.router.must(l.router.h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
		l.router.address(name, addrs...)
	}
	return l
}

// add adds a node with one pod. The argument on is the number of the node's link.
func (l *lab) add(name string, on int, address, podCIDR string) *labNode {
	l.t.Helper()
	n := &labNode{host: newSpace(l.t), pod: newSpace(l.t)}
	n.node = node{name: name, podCIDRs: prefixes(podCIDR), addresses: []netip.Addr{netip.MustParsePrefix(address).Addr()}}
	port := "p-" + name
	cable(l.router, n.host, port, "eth0")
	l.router.must(l.router.h.LinkSetMaster(l.router.link(port), l.router.link(fmt.Sprintf("br%d", on))))
	l.router.up(port)
	n.host.address("eth0", address)
	gateway := netip.MustParsePrefix(address).Masked().Addr().Next()
	n.host.defaultRoute(gateway.String())

	podGateway := n.podCIDRs[0].Addr().Next()
	n.podIP = podGateway.Next()
	bits := n.podCIDRs[0].Bits()
	cable(n.host, n.pod, bridgeName, "eth0")
	n.host.address(bridgeName, netip.PrefixFrom(podGateway, bits).String())
	n.pod.address("eth0", netip.PrefixFrom(n.podIP, bits).String())
	n.pod.defaultRoute(podGateway.String())
	l.nodes = append(l.nodes, n)
	return n
}

// apply makes the kernel of each node match its plan. The argument known are the nodes that have
// Node objects.
func (l *lab) apply(known ...*labNode) {
	l.t.Helper()
	var api []node
	for _, n := range known {
		api = append(api, n.node)
	}
	for _, n := range known {
		k := &kernel{h: n.host.h, netNS: int(n.host.ns)}
		links, err := k.links()
		if err != nil {
			l.t.Fatal(err)
		}
		if err := k.apply(plan(n.name, api, links, nil)); err != nil {
			l.t.Fatalf("%s: %v", n.name, err)
		}
	}
}

// reaches sends a datagram from one pod to another and waits for its answer. It returns the source
// address that the receiver saw.
func (l *lab) reaches(from, to *labNode, patience time.Duration) (source netip.Addr, ok bool) {
	l.t.Helper()
	var server, client *net.UDPConn
	in(l.t, to.pod.ns, func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.podIP, 7)))
		return err
	})
	defer server.Close()
	in(l.t, from.pod.ns, func() (err error) {
		client, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.podIP, 7)))
		return err
	})
	defer client.Close()
	seen := make(chan netip.Addr, 1)
	go func() {
		defer close(seen)
		buf := make([]byte, 16)
		for {
			n, peer, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			select {
			case seen <- peer.Addr():
			default: // the first error was already sent
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], peer)
		}
	}()
	deadline := time.Now().Add(patience) // the end of the wait for a packet that may never arrive
	_ = server.SetDeadline(deadline)
	answered := false
	// Send repeatedly, because datagrams may be lost until links and neighbours are ready.
	for !answered && time.Now().Before(deadline) {
		if _, err := client.Write([]byte("ping")); err != nil {
			continue // an answer to an earlier datagram
		}
		_ = client.SetReadDeadline(time.Now().Add(min(patience, time.Second)))
		_, err := client.Read(make([]byte, 16))
		answered = err == nil
	}
	return <-seen, answered
}

func (l *lab) mustReach(from, to *labNode) {
	l.t.Helper()
	if source, ok := l.reaches(from, to, time.Minute); !ok || source != from.podIP {
		l.t.Fatalf("%s to %s: arrived %v, from %v", from.name, to.name, ok, source)
	}
}

// mustLeave sends a packet from a pod to the router, which has no routes to pods. The router's
// answer must reach the pod, because the node masquerades the packet.
func (l *lab) mustLeave(from *labNode) {
	l.t.Helper()
	if from.podIP.Is6() != from.addresses[0].Is6() {
		return // the node has no address of this IP family
	}
	outside := &labNode{node: node{name: "outside"}, pod: l.router, podIP: netip.MustParseAddr("10.60.0.1")}
	if from.podIP.Is6() {
		outside.podIP = netip.MustParseAddr("fd60::1")
	}
	if source, ok := l.reaches(from, outside, time.Minute); !ok || source != from.addresses[0] {
		l.t.Fatalf("out of the cluster: arrived %v, from %v", ok, source)
	}
}

func (n *labNode) ownRoutes(t *testing.T) []netlink.Route {
	t.Helper()
	rs, err := n.host.h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func (n *labNode) sentByVXLAN() uint64 {
	if l, err := n.host.h.LinkByName(vxlanName); err == nil {
		return l.Attrs().Statistics.TxPackets
	}
	return 0
}

// TestKernel connects three nodes, two of them on the same link, and then removes one of them.
func TestKernel(t *testing.T) {
	for name, c := range map[string]struct {
		near1, near2, far, pods1, pods2, pods3 string
		always                                 bool // if true, nodes on the same link need VXLAN too
	}{
		"IPv4": {"10.50.0.11/24", "10.50.0.12/24", "10.60.0.11/24", "10.244.0.0/24",
			"10.244.1.0/24", "10.244.2.0/24", false},
		"IPv6": {"fd50::11/64", "fd50::12/64", "fd60::11/64", "fd00::/64", "fd00:0:0:1::/64",
			"fd00:0:0:2::/64", false},
		"IPv6 pods on IPv4 nodes": {"10.50.0.11/24", "10.50.0.12/24", "10.60.0.11/24", "fd00::/64",
			"fd00:0:0:1::/64", "fd00:0:0:2::/64", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			n1, n2, n3 := l.add("n1", 0, c.near1, c.pods1), l.add("n2", 0, c.near2, c.pods2), l.add("n3", 1, c.far, c.pods3)
			if _, ok := l.reaches(n1, n3, 100*time.Millisecond); ok {
				t.Fatal("reached before there is a way")
			}
			l.apply(n1, n2, n3)
			l.mustReach(n1, n2)
			l.mustReach(n2, n1)
			before := n1.sentByVXLAN()
			l.mustReach(n1, n3)
			if n1.sentByVXLAN() == before {
				t.Error("nothing went through VXLAN")
			}
			l.mustReach(n3, n2)
			l.mustLeave(n1)

			// Applying the same plan again must keep the route of another program, and replace a
			// wrong route of this package.
			foreign := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("192.0.2.0/24")),
				LinkIndex: n1.host.link("eth0").Attrs().Index, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_STATIC}
			n1.host.must(n1.host.h.RouteAdd(foreign))
			stale := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("198.51.100.0/24")),
				LinkIndex: foreign.LinkIndex, Scope: netlink.SCOPE_LINK, Protocol: routeProtocol}
			n1.host.must(n1.host.h.RouteAdd(stale))
			index := n1.host.link(vxlanName).Attrs().Index
			l.apply(n1, n2, n3)
			if n1.host.link(vxlanName).Attrs().Index != index {
				t.Error("the device was created again")
			}
			if rs := n1.ownRoutes(t); len(rs) != 3 {
				t.Errorf("routes: %v", rs)
			}
			if rs, err := n1.host.h.RouteListFiltered(netlink.FAMILY_V4, foreign,
				netlink.RT_FILTER_DST); err != nil || len(rs) != 1 {
				t.Errorf("foreign route: %v %v", rs, err)
			}
			l.mustReach(n1, n3)

			// Apply the plans without n3, as after its deletion.
			l.apply(n1, n2)
			if _, err := n1.host.h.LinkByName(vxlanName); (err == nil) != c.always {
				t.Errorf("the device is still there: %v", err == nil)
			}
			if rs := n1.ownRoutes(t); len(rs) != 2 {
				t.Errorf("routes: %v", rs)
			}
			l.mustReach(n1, n2)
			k := &kernel{h: n1.host.h, netNS: int(n1.host.ns)}
			if err := k.apply(wanted{}); err != nil {
				t.Fatal(err)
			}
			if rs := n1.ownRoutes(t); len(rs) != 0 {
				t.Errorf("routes: %v", rs)
			}
		})
	}
}
