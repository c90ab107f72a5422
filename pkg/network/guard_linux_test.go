// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/test/unshare"
)

// datagram returns an IPv4 packet with a UDP datagram to port 7.
func datagram(from, to netip.Addr, payload string) []byte {
	b := append([]byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, from.AsSlice()...)
	b = append(b, to.AsSlice()...)
	binary.BigEndian.PutUint16(b[2:], uint16(28+len(payload)))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum>>16+sum&0xffff))
	b = append(b, 0, 7, 0, 7, 0, byte(8+len(payload)), 0, 0)
	return append(b, payload...)
}

// ethernet returns a frame with an IPv4 packet.
func ethernet(t *testing.T, to string, packet []byte) []byte {
	t.Helper()
	m, err := net.ParseMAC(to)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(m, 2, 0, 0, 0, 0, 9, 8, 0), packet...)
}

// listen opens a UDP socket on port 7 in a namespace.
func listen(t *testing.T, s *space) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	in(t, s.ns, func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 7})
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// before calls send repeatedly until c receives "end". It reports whether c received "attack"
// before that.
func before(t *testing.T, c *net.UDPConn, send func()) bool {
	t.Helper()
	buf, found := make([]byte, 64), false
	for range 60 { // the first datagrams may be lost during neighbour discovery
		send()
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		for {
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			found = found || string(buf[:n]) == "attack"
			if string(buf[:n]) == "end" {
				return found
			}
		}
	}
	t.Fatal("nothing arrives")
	return false
}

// raw sends frames on a link of a namespace. If link is empty, it sends IP packets instead.
func raw(t *testing.T, s *space, link string, list ...[]byte) {
	t.Helper()
	in(t, s.ns, func() error {
		family, protocol, to := unix.AF_INET, unix.IPPROTO_RAW, unix.Sockaddr(nil)
		if link != "" {
			family, protocol, to = unix.AF_PACKET, 0, &unix.SockaddrLinklayer{Ifindex: s.link(link).Attrs().Index}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, b := range list {
			if link == "" {
				to = &unix.SockaddrInet4{Addr: [4]byte(b[16:20])}
			}
			err = errors.Join(err, unix.Sendto(fd, b, 0, to))
		}
		return err
	})
}

// say sends a datagram from a UDP socket in the pod's namespace.
func say(t *testing.T, from *space, to netip.Addr, port uint16, what []byte) {
	t.Helper()
	in(t, from.ns, func() error {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(what)
		return err
	})
}

// TestGuard checks that packets with forged source addresses are dropped on every path.
func TestGuard(t *testing.T) {
	l := newLab(t)
	n1 := l.add("n1", 0, "10.50.0.11/24", "10.244.0.0/24")
	n2 := l.add("n2", 0, "10.50.0.12/24", "10.244.1.0/24")
	far := l.add("far", 1, "10.60.0.11/24", "10.244.2.0/24")
	l.apply(n1, n2, far)
	l.mustReach(n1, n2)
	l.mustReach(n1, far)
	ofPod := listen(t, far.pod)

	// A pod sends a VXLAN packet to another node, whose VXLAN device would deliver the inner frame.
	inner := ethernet(t, hardwareAddress("far"), datagram(netip.MustParseAddr("10.244.1.77"), far.podIP, "attack"))
	tunnelled := append([]byte{8, 0, 0, 0, 0, 0, vxlanID, 0}, inner...)
	// The VXLAN device accepts packets to any address of its node.
	for _, to := range []netip.Addr{far.addresses[0], far.podCIDRs[0].Addr().Next()} {
		if before(t, ofPod, func() {
			say(t, n1.pod, to, vxlanPort, tunnelled)
			say(t, n1.pod, far.podIP, 7, []byte("end"))
		}) {
			t.Errorf("a pod's packet to %v came out of the tunnel", to)
		}
	}

	// Another network uses a VXLAN device with the same port. It sends from an address that belongs
	// to no node.
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "other"
	far.host.must(far.host.h.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: vxlanID + 1, Port: vxlanPort,
		Learning: true}))
	far.host.address("other", "10.70.0.1/24")
	other := ethernet(t, far.host.link("other").Attrs().HardwareAddr.String(),
		datagram(netip.MustParseAddr("10.70.0.2"), netip.MustParseAddr("10.70.0.1"), "end"))
	before(t, listen(t, far.host), func() {
		say(t, l.router, far.addresses[0], vxlanPort, append([]byte{8, 0, 0, 0, 0, 0, vxlanID + 1, 0}, other...))
	})

	// Another node sends packets whose source address is that of a pod of this node.
	ofPod = listen(t, n1.pod)
	if before(t, ofPod, func() {
		raw(t, n2.host, "", datagram(netip.MustParseAddr("10.244.0.77"), n1.podIP, "attack"))
		say(t, n2.pod, n1.podIP, 7, []byte("end"))
	}) {
		t.Error("another node could send with the address of one of this node's pods")
	}

	// A pod sends to the node's loopback address, which is routable because of host ports.
	in(t, n1.host.ns, func() error {
		return enable([]string{"/proc/sys/net/ipv4/conf/" + bridgeName + "/route_localnet"})
	})
	ofNode := listen(t, n1.host)
	bridge := n1.host.link(bridgeName).Attrs().HardwareAddr.String()
	if before(t, ofNode, func() {
		raw(t, n1.pod, "eth0", ethernet(t, bridge, datagram(n1.podIP, netip.MustParseAddr("127.0.0.1"), "attack")),
			ethernet(t, bridge, datagram(n1.podIP, n1.podCIDRs[0].Addr().Next(), "end")))
	}) {
		t.Error("a pod reached the node's loopback address")
	}
}

// listenMulticast opens a UDP socket that receives datagrams to a group, and to the same port of
// the namespace's own addresses.
func listenMulticast(t *testing.T, s *space, group netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	in(t, s.ns, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		c, err = net.ListenMulticastUDP("udp", link, net.UDPAddrFromAddrPort(group))
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// sendFrom sends a datagram with any source address. A multicast datagram is sent on the given
// link.
func sendFrom(t *testing.T, s *space, link string, source netip.Addr, to netip.AddrPort, what string) {
	t.Helper()
	index := s.link(link).Attrs().Index
	in(t, s.ns, func() error {
		control := func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				if source.Is6() {
					err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1),
						unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index))
					return
				}
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1),
					unix.SetsockoptIPMreqn(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(index)}))
			}), err)
		}
		c, err := (&net.ListenConfig{Control: control}).ListenPacket(t.Context(), "udp",
			netip.AddrPortFrom(source, 0).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo([]byte(what), net.UDPAddrFromAddrPort(to))
		return err
	})
}

// TestGuardMulticast checks that a copy of a node's own multicast packet, which the kernel delivers
// to the node as if it had arrived on the link, is not dropped. The same packet from another node
// must be dropped.
func TestGuardMulticast(t *testing.T) {
	for name, c := range map[string]struct{ address, peer, own, other, group string }{
		// The source address own is in the node's pod range.
		"IPv4": {"", "", "10.244.0.1", "10.50.0.12", "239.1.2.3"},
		"IPv6": {"fd50::11/64", "fd50::12/64", "fd50::11", "fd50::12", "ff05::7"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			n1 := l.add("n1", 0, "10.50.0.11/24", "10.244.0.0/24")
			n2 := l.add("n2", 0, "10.50.0.12/24", "10.244.1.0/24")
			if c.address != "" {
				n1.host.address("eth0", c.address)
				n2.host.address("eth0", c.peer)
			}
			l.apply(n1, n2)
			own, other, group := netip.MustParseAddr(c.own), netip.MustParseAddr(c.other), netip.MustParseAddr(c.group)
			port := uint16(7) // each case uses another port, so that late packets of earlier cases are not counted
			for from, host := range map[string]*labNode{"itself": n1, "another node": n2} {
				for _, to := range []netip.Addr{group, own} {
					port++
					received := listenMulticast(t, n1.host, netip.AddrPortFrom(group, port))
					arrived := before(t, received, func() {
						sendFrom(t, host.host, "eth0", own, netip.AddrPortFrom(to, port), "attack")
						sendFrom(t, n2.host, "eth0", other, netip.AddrPortFrom(to, port), "end")
					})
					if arrived != (host == n1) {
						t.Errorf("from %s, as %v to %v: arrived %t", from, own, to, arrived)
					}
				}
			}
		})
	}
}

// TestBridgeFiltered checks that the network is not ready if network policies do not apply to
// packets between ports of the bridge.
func TestBridgeFiltered(t *testing.T) {
	unshare.Need(t)
	bin, _ := plugins(t)
	n := New(Config{ConfDir: t.TempDir(), BinDir: bin, CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	n.bridgeSysctls = filepath.Join(t.TempDir(), "bridge")
	w := wanted{podCIDRs: prefixes("10.244.0.0/24"), mtu: 1500}
	mustSay := func(what string) {
		t.Helper()
		err := n.configure(t.Context(), w)
		if ready := n.Ready(); err == nil || ready == nil || !strings.Contains(ready.Error(), what) {
			t.Errorf("%v; ready: %v; want %q", err, ready, what)
		}
	}
	mustSay("br_netfilter is not loaded")
	set := func(name, value string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(n.bridgeSysctls, 0o700),
			os.WriteFile(filepath.Join(n.bridgeSysctls, name), []byte(value), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	set("bridge-nf-call-iptables", "1\n")
	set("bridge-nf-call-ip6tables", "0\n")
	mustSay("bridge-nf-call-ip6tables is off")
	set("bridge-nf-call-ip6tables", "1\n")
	if err := n.configure(t.Context(), w); err != nil || n.Ready() != nil {
		t.Errorf("%v %v", err, n.Ready())
	}
	set("bridge-nf-call-iptables", "0\n")
	mustSay("bridge-nf-call-iptables is off")
}
