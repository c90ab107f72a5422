// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package announce makes a node answer on its network links for addresses of load balancers.
//
// The addresses are configured on a network device of the proxy, a bridge without ports, so that
// they belong to the node. The kernel then answers ARP requests for them on every link. For IPv6 it
// needs a proxy entry per address and link to answer neighbour solicitations. Packets to the
// addresses never reach a process of the node, because the proxy's tables send them to endpoints.
// When an address is added, the Announcer notifies the neighbours on the links, because they may
// have stored the hardware address of another node.
//
// The addresses on the device are the only state, and a new process reads them. An Announcer must be
// used by one goroutine only.
package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Device is the name of the network device for the addresses of load balancers.
const Device = "keelson-lb"

// Announcer manages the addresses of load balancers on one node.
type Announcer struct {
	handle *netlink.Handle
	netNS  int
}

// Open connects to the kernel in the network namespace netNS, or in the process's namespace if
// netNS is 0. It changes nothing.
func Open(netNS int) (*Announcer, error) {
	at := netns.NsHandle(netNS)
	if netNS == 0 {
		at = netns.None()
	}
	h, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	return &Announcer{handle: h, netNS: netNS}, nil
}

// Close closes the connection to the kernel. The addresses stay on the node.
func (a *Announcer) Close() { a.handle.Close() }

// Set makes the node answer for exactly these addresses. After an error the node may answer for
// only some of them, and the caller may call Set again.
func (a *Announcer) Set(ctx context.Context, want []netip.Addr) error {
	device, err := a.device(len(want) > 0)
	if device == nil || err != nil {
		return err
	}
	have, err := a.addresses(device)
	if err != nil {
		return err
	}
	links, err := a.links(device)
	if err != nil {
		return err
	}
	var errs []error
	for _, old := range have {
		if !slices.Contains(want, old) {
			errs = append(errs, a.remove(device, links, old))
		}
	}
	for _, addr := range want {
		if !slices.Contains(have, addr) {
			errs = append(errs, a.add(ctx, device, links, addr))
		}
	}
	return errors.Join(errs...)
}

// Remove removes the device and its addresses.
func (a *Announcer) Remove(ctx context.Context) error {
	if err := a.Set(ctx, nil); err != nil {
		return err
	}
	device, err := a.device(false)
	if device == nil || err != nil {
		return err
	}
	if err := a.handle.LinkDel(device); err != nil {
		return fmt.Errorf("delete %s: %w", Device, err)
	}
	return nil
}

// device returns the Device and sets it up. If it does not exist, device creates it if create is
// true; otherwise it returns nil.
func (a *Announcer) device(create bool) (netlink.Link, error) {
	l, err := a.handle.LinkByName(Device)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if !create {
			return nil, nil
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = Device
		if err := a.handle.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return nil, fmt.Errorf("make %s: %w", Device, err)
		}
		l, err = a.handle.LinkByName(Device)
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", Device, err)
	}
	if err := a.handle.LinkSetUp(l); err != nil {
		return nil, fmt.Errorf("set %s up: %w", Device, err)
	}
	return l, nil
}

// addresses returns the addresses on the device, without link-local ones.
func (a *Announcer) addresses(device netlink.Link) ([]netip.Addr, error) {
	list, err := a.handle.AddrList(device, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", Device, err)
	}
	var out []netip.Addr
	for _, x := range list {
		if addr, ok := netip.AddrFromSlice(x.IP); ok && !addr.Unmap().IsLinkLocalUnicast() {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}

// link is a network interface of the node on which it can have neighbours.
type link struct {
	netlink.Link
	prefixes []netip.Prefix
	self     netip.Addr // link-local IPv6 address; invalid if there is none
}

func (l link) has(addr netip.Addr) bool {
	return slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// links returns the node's links that are up and have an Ethernet address, except the Device.
func (a *Announcer) links(device netlink.Link) ([]link, error) {
	all, err := a.handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	var out []link
	for _, l := range all {
		attrs := l.Attrs()
		if attrs.Index == device.Attrs().Index || attrs.Flags&net.FlagLoopback != 0 ||
			attrs.Flags&net.FlagUp == 0 || len(attrs.HardwareAddr) != 6 {
			continue
		}
		addrs, err := a.handle.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", attrs.Name, err)
		}
		n := link{Link: l}
		for _, x := range addrs {
			addr, _ := netip.AddrFromSlice(x.IP)
			bits, _ := x.Mask.Size()
			if addr = addr.Unmap(); addr.Is6() && addr.IsLinkLocalUnicast() {
				n.self = addr
			}
			n.prefixes = append(n.prefixes, netip.PrefixFrom(addr, bits).Masked())
		}
		out = append(out, n)
	}
	return out, nil
}

func (a *Announcer) add(ctx context.Context, device netlink.Link, links []link, addr netip.Addr) error {
	for _, l := range links {
		if !l.has(addr) {
			continue
		}
		if addr.Is6() {
			if err := a.answerFor(l, addr); err != nil {
				return err
			}
		}
	}
	full := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if addr.Is6() {
		// With the preferred lifetime 0 the node never uses the address as a source address.
		full.Flags, full.PreferedLft, full.ValidLft = unix.IFA_F_NODAD, 0, forever
	}
	if err := a.handle.AddrAdd(device, full); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add %v to %s: %w", addr, Device, err)
	}
	for _, l := range links {
		if l.has(addr) {
			if err := a.tell(ctx, l, addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// forever is the value that means an unlimited lifetime of an address.
const forever = 1<<31 - 1

func (a *Announcer) remove(device netlink.Link, links []link, addr netip.Addr) error {
	if addr.Is6() {
		for _, l := range links {
			err := a.handle.NeighDel(proxyEntry(l, addr))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("no longer answer for %v on %s: %w", addr, l.Attrs().Name, err)
			}
		}
	}
	full := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if err := a.handle.AddrDel(device, full); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove %v from %s: %w", addr, Device, err)
	}
	return nil
}

// answerFor makes the kernel answer neighbour solicitations on a link for an address of the Device.
func (a *Announcer) answerFor(l link, addr netip.Addr) error {
	err := a.in(func() error {
		return os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", l.Attrs().Name, "proxy_ndp"), []byte("1"), 0o644)
	})
	if err == nil {
		err = a.handle.NeighSet(proxyEntry(l, addr))
	}
	if err != nil {
		return fmt.Errorf("answer for %v on %s: %w", addr, l.Attrs().Name, err)
	}
	return nil
}

// in runs f in the network namespace of the Announcer, because files in /proc/sys/net show the
// settings of the calling thread's namespace.
func (a *Announcer) in(f func() error) error {
	if a.netNS == 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		err := netns.Set(netns.NsHandle(a.netNS))
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func proxyEntry(l link, addr netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: netlink.FAMILY_V6, Flags: netlink.NTF_PROXY,
		IP: addr.AsSlice()}
}
