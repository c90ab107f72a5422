// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/test/unshare"
)

// podNetwork is the network namespace of a node. The CNI plugin attaches pods to it; the plugin is
// this test binary (see TestMain).
type podNetwork struct {
	t    *testing.T
	node netns.NsHandle
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
}

// podNamespace is the network namespace of a pod. The test acts in it with all capabilities.
type podNamespace struct {
	t      *testing.T
	ns     netns.NsHandle
	v4, v6 netip.Addr
}

// within runs f in a network namespace. f must not start goroutines, because these would run in
// another namespace.
func within(t *testing.T, ns netns.NsHandle, f func() error) {
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

func newNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		ns, err := netns.New()
		if err != nil {
			t.Error(err)
		}
		made <- ns
	}()
	ns := <-made
	t.Cleanup(func() { ns.Close() })
	return ns
}

func newPodNetwork(t *testing.T) *podNetwork {
	t.Helper()
	unshare.Need(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err := errors.Join(err, os.Symlink(self, filepath.Join(dir, "keelson"))); err != nil {
		t.Fatal(err)
	}
	n := &podNetwork{t: t, node: newNamespace(t), cni: libcni.NewCNIConfigWithCacheDir([]string{dir}, dir, nil)}
	n.list, err = libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "pods", "plugins": [
		{"type": "keelson", "bridge": "br0", "mtu": 1400, "subnets": ["10.9.0.0/24", "fd09::/64"], "dataDir": %q}]}`, dir))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pod attaches a new pod to the network. The pod gets the next free address of each range.
func (n *podNetwork) pod(name string) *podNamespace {
	n.t.Helper()
	p := &podNamespace{t: n.t, ns: newNamespace(n.t)}
	within(n.t, n.node, func() error {
		_, err := n.cni.AddNetworkList(n.t.Context(), n.list, &libcni.RuntimeConf{
			ContainerID: name, IfName: "eth0", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(p.ns))})
		return err
	})
	within(n.t, p.ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for _, a := range addrs {
			switch addr, _ := netip.AddrFromSlice(a.IP); {
			case addr.Unmap().Is4():
				p.v4 = addr.Unmap()
			case addr.IsGlobalUnicast():
				p.v6 = addr
			}
		}
		return err
	})
	return p
}

// listen opens a UDP socket at an address of the pod.
func (p *podNamespace) listen(addr netip.Addr) *net.UDPConn {
	p.t.Helper()
	var c *net.UDPConn
	within(p.t, p.ns, func() (err error) {
		if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 7000))); err != nil {
			return err
		}
		return c.SetReadDeadline(time.Now().Add(patience))
	})
	p.t.Cleanup(func() { c.Close() })
	return c
}

// send sends a datagram to the socket that another pod has opened with listen.
func (p *podNamespace) send(from, to netip.Addr, text string) {
	p.t.Helper()
	within(p.t, p.ns, func() error {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7000)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(text))
		return err
	})
}

// mustReceive reads the next datagram and compares it with want.
func mustReceive(t *testing.T, c *net.UDPConn, want string) {
	t.Helper()
	buf := make([]byte, 100)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:n]) != want {
		t.Errorf("received %q from %v (%v), want %q", buf[:n], from, err, want)
	}
}

// TestPodTakesAnothersAddress lets a pod send packets from the addresses of another pod. For this
// it needs only NET_RAW, a default capability. A third pod must not receive these packets, and the
// third pod's packets to the real owner must still arrive there.
func TestPodTakesAnothersAddress(t *testing.T) {
	n := newPodNetwork(t)
	mallory, alice, bob := n.pod("mallory"), n.pod("alice"), n.pod("bob")
	for _, addr := range []struct{ mallory, alice, bob netip.Addr }{
		{mallory.v4, alice.v4, bob.v4},
		{mallory.v6, alice.v6, bob.v6},
	} {
		toAlice, toBob, toMallory := alice.listen(addr.alice), bob.listen(addr.bob), mallory.listen(addr.mallory)
		within(t, mallory.ns, func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			taken := &netlink.Addr{IPNet: netlink.NewIPNet(addr.bob.AsSlice())}
			if addr.bob.Is6() {
				taken.Flags = unix.IFA_F_NODAD
			}
			return netlink.AddrAdd(link, taken)
		})
		mallory.send(addr.bob, addr.alice, "as bob")
		mallory.send(addr.mallory, addr.alice, "as mallory")
		mustReceive(t, toAlice, "as mallory")
		alice.send(addr.alice, addr.bob, "a secret")
		mustReceive(t, toBob, "a secret")
		alice.send(addr.alice, addr.mallory, "hello")
		mustReceive(t, toMallory, "hello")
	}
}

// TestRogueRouter lets a pod announce itself as an IPv6 router (CVE-2020-10749). Other pods must
// not add a route through it.
func TestRogueRouter(t *testing.T) {
	n := newPodNetwork(t)
	mallory, alice := n.pod("mallory"), n.pod("alice")
	toAlice := alice.listen(alice.v6)
	within(t, mallory.ns, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		raw, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		defer raw.Close()
		c := ipv6.NewPacketConn(raw)
		if err := errors.Join(c.SetMulticastInterface(link), c.SetMulticastHopLimit(255)); err != nil {
			return err
		}
		// The body of a router advertisement: hop limit 64, no flags, a router lifetime of 1800 s,
		// and no options.
		body := &icmp.RawBody{Data: []byte{64, 0, 1800 >> 8, 1800 & 0xff, 0, 0, 0, 0, 0, 0, 0, 0}}
		frame, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: body}).Marshal(nil)
		if err != nil {
			return err
		}
		_, err = c.WriteTo(frame, nil, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: "eth0"})
		return err
	})
	mallory.send(mallory.v6, alice.v6, "after the announcement")
	mustReceive(t, toAlice, "after the announcement")
	within(t, alice.ns, func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V6)
		for _, r := range routes {
			if r.Gw.IsLinkLocalUnicast() {
				t.Errorf("alice sends by %v now: %v", r.Gw, r)
			}
		}
		return err
	})
}
