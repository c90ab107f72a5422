// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"keelson.dev/api/clock"
)

// Local returns the System of this machine.
func Local(clk clock.Clock) (*System, error) {
	s := &System{
		Root: os.Geteuid() == 0, Files: os.DirFS("/"), Now: clk.Now(), Synchronised: synchronised(),
		Writable: func(path string) bool { return unix.Access(path, unix.W_OK) == nil },
		Space:    space, Listen: listen, Make: makeKind,
		Lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		},
	}
	var err error
	if s.HostName, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	s.Kernel = unix.ByteSliceToString(names.Release[:])
	return s, s.readNetwork()
}

// synchronised asks the kernel, to which all programs that follow time servers report.
func synchronised() bool {
	state, err := unix.Adjtimex(&unix.Timex{})
	return err != nil || state != unix.TIME_ERROR
}

func space(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, fmt.Errorf("file system of %s: %w", path, err)
	}
	size := uint64(st.Bsize)
	return Space{Type: st.Type, Free: st.Bavail * size, Total: st.Blocks * size}, nil
}

func listen(ctx context.Context, network, address string) error {
	var l io.Closer
	var err error
	if network == "udp" {
		l, err = (&net.ListenConfig{}).ListenPacket(ctx, network, address)
	} else {
		l, err = (&net.ListenConfig{}).Listen(ctx, network, address)
	}
	if err != nil {
		return err
	}
	return l.Close()
}

// fleeting are the flags of addresses that may disappear, or that the machine cannot use yet.
const fleeting = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

func (s *System) readNetwork() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("network interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	for _, a := range addresses {
		if p, ok := prefixOf(a.IPNet); ok {
			s.Addresses = append(s.Addresses, Address{names[a.LinkIndex], p, a.Flags&fleeting != 0})
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return fmt.Errorf("routes: %w", err)
		}
		for _, r := range routes {
			if r.Table != unix.RT_TABLE_MAIN {
				continue
			}
			p, ok := prefixOf(r.Dst)
			if r.Dst == nil {
				p, ok = netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
				if family == netlink.FAMILY_V6 {
					p = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				}
			}
			if ok {
				s.Routes = append(s.Routes, Route{names[r.LinkIndex], p, r.Priority})
			}
		}
	}
	return nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

// makeKind makes something in a network namespace that only this function knows. The kernel removes
// everything when the namespace is closed.
func makeKind(kind Kind) error {
	ns, err := newNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	switch kind {
	case NetworkNamespace:
		return nil
	case PacketFilter:
		return makeFilter(int(ns))
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	attrs := netlink.LinkAttrs{Name: "probe"}
	link := map[Kind]netlink.Link{
		VirtualEthernet: &netlink.Veth{LinkAttrs: attrs, PeerName: "peer"},
		Bridge:          &netlink.Bridge{LinkAttrs: attrs},
		VXLAN:           &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: vxlanPort},
	}[kind]
	return h.LinkAdd(link)
}

// newNamespace makes a network namespace, and leaves the calling goroutine in its own.
func newNamespace() (netns.NsHandle, error) {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), err
	}
	defer own.Close()
	ns, err := netns.New() // enters the namespace
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), err
	}
	if err := netns.Set(own); err != nil {
		// The thread stays locked, so that no other goroutine runs in the wrong namespace.
		_ = ns.Close()
		return netns.None(), err
	}
	runtime.UnlockOSThread()
	return ns, nil
}

// makeFilter makes tables in the families that the proxy and the pod network use, one of them with a
// chain that translates addresses.
func makeFilter(ns int) error {
	c, err := nftables.New(nftables.WithNetNSFd(ns))
	if err != nil {
		return err
	}
	c.AddTable(&nftables.Table{Name: "probe", Family: nftables.TableFamilyBridge})
	c.AddTable(&nftables.Table{Name: "probe", Family: nftables.TableFamilyIPv6})
	c.AddChain(&nftables.Chain{
		Name: "probe", Table: c.AddTable(&nftables.Table{Name: "probe", Family: nftables.TableFamilyIPv4}),
		Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
	return c.Flush()
}
