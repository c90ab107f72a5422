// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol is the protocol number of the routes of this package. The kernel leaves numbers of
// this range to daemons, and iproute2's list does not assign this number to another program.
const routeProtocol netlink.RouteProtocol = 107

// nowherePriority is the metric of routes that drop packets. The routes of the bridge have lower
// metrics, so they take precedence.
const nowherePriority = 1 << 20

// kernel reads and changes the routes, devices and tables of one network namespace.
type kernel struct {
	h     *netlink.Handle
	netNS int // file descriptor of the namespace; 0 means the namespace of the process

	applied *masquerade // the masquerade that was applied last; nil at first
	guarded *guard      // the guard that was applied last; nil at first
}

func newKernel() (*kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &kernel{h: h}, nil
}

func (k *kernel) close() { k.h.Close() }

// links returns the links that are up and have addresses, except the links of this package and the
// loopback.
func (k *kernel) links() ([]link, error) {
	all, err := k.h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []link
	for _, l := range all {
		a := l.Attrs()
		if a.Flags&net.FlagUp == 0 || a.Flags&net.FlagLoopback != 0 || a.Name == vxlanName || a.Name == bridgeName {
			continue
		}
		addrs, err := k.h.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", a.Name, err)
		}
		entry := link{name: a.Name, mtu: a.MTU}
		for _, addr := range addrs {
			if p, ok := prefixOf(addr.IPNet); ok && !p.Addr().IsLinkLocalUnicast() {
				entry.prefixes = append(entry.prefixes, p)
			}
		}
		if len(entry.prefixes) > 0 {
			out = append(out, entry)
		}
	}
	return out, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// apply makes the kernel's state match the wanted state. After a failure it continues with the
// other parts, and returns all errors.
func (k *kernel) apply(w wanted) error {
	errs := []error{k.applyGuard(w.guard)} // first, because the guard protects the devices below
	index, err := k.applyVXLAN(w.vxlan)
	errs = append(errs, err)
	if w.vxlan != nil && err == nil {
		errs = append(errs, k.applyNeighbours(index, w.neighbours), k.applyForwards(index, w.forwards))
	}
	errs = append(errs, k.applyRoutes(w.routes), k.applyMasquerade(w.masquerade))
	return errors.Join(errs...)
}

// applyVXLAN creates, changes or removes the VXLAN device, and returns its index.
func (k *kernel) applyVXLAN(want *vxlan) (int, error) {
	have, err := k.h.LinkByName(vxlanName)
	var notFound netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &notFound) {
		return 0, fmt.Errorf("find %s: %w", vxlanName, err)
	}
	exists := err == nil
	if exists && (want == nil || !sameVXLAN(have, want)) {
		if err := k.h.LinkDel(have); err != nil {
			return 0, fmt.Errorf("remove %s: %w", vxlanName, err)
		}
		exists = false
	}
	if want == nil {
		return 0, nil
	}
	if !exists {
		if have, err = k.addVXLAN(want); err != nil {
			return 0, err
		}
	}
	if err := k.applyAddresses(have, want.addresses); err != nil {
		return 0, err
	}
	if have.Attrs().MTU != want.mtu {
		if err := k.h.LinkSetMTU(have, want.mtu); err != nil {
			return 0, fmt.Errorf("set MTU of %s: %w", vxlanName, err)
		}
	}
	if err := k.h.LinkSetUp(have); err != nil {
		return 0, fmt.Errorf("set %s up: %w", vxlanName, err)
	}
	return have.Attrs().Index, nil
}

// sameVXLAN reports whether the device has the wanted values of those properties that cannot be
// changed while it exists.
func sameVXLAN(have netlink.Link, want *vxlan) bool {
	v, ok := have.(*netlink.Vxlan)
	if !ok {
		return false
	}
	local, _ := netip.AddrFromSlice(v.SrcAddr)
	return v.VxlanId == vxlanID && v.Port == vxlanPort && !v.Learning && local.Unmap() == want.local &&
		v.HardwareAddr.String() == want.mac
}

func (k *kernel) addVXLAN(want *vxlan) (netlink.Link, error) {
	mac, err := net.ParseMAC(want.mac)
	if err != nil {
		return nil, fmt.Errorf("hardware address: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = vxlanName, mac, want.mtu
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: vxlanID, Port: vxlanPort, SrcAddr: want.local.AsSlice()}
	if err := k.h.LinkAdd(v); err != nil {
		return nil, fmt.Errorf("add %s: %w", vxlanName, err)
	}
	l, err := k.h.LinkByName(vxlanName)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", vxlanName, err)
	}
	return l, nil
}

func (k *kernel) applyAddresses(l netlink.Link, want []netip.Prefix) error {
	have, err := k.h.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", vxlanName, err)
	}
	for i := range have {
		p, _ := prefixOf(have[i].IPNet)
		if p.Addr().IsLinkLocalUnicast() || slices.Contains(want, p) {
			continue
		}
		if err := k.h.AddrDel(l, &have[i]); err != nil {
			return fmt.Errorf("remove address of %s: %w", vxlanName, err)
		}
	}
	for _, p := range want {
		addr := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // makes the address usable at once, because no other node can have it
		}
		if err := k.h.AddrReplace(l, addr); err != nil {
			return fmt.Errorf("add address to %s: %w", vxlanName, err)
		}
	}
	return nil
}

func (k *kernel) applyNeighbours(index int, want []neighbour) error {
	have, err := k.h.NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	var errs []error
	keep := map[neighbour]bool{}
	for i := range have {
		ip, ok := netip.AddrFromSlice(have[i].IP)
		n := neighbour{ip.Unmap(), have[i].HardwareAddr.String()}
		switch {
		case !ok || have[i].State&netlink.NUD_PERMANENT == 0:
		case slices.Contains(want, n):
			keep[n] = true
		// Keep entries with a changed hardware address here; they are replaced below.
		case !slices.ContainsFunc(want, func(x neighbour) bool { return x.ip == n.ip }):
			errs = append(errs, named("remove neighbour", k.h.NeighDel(&have[i])))
		}
	}
	for _, n := range want {
		if keep[n] {
			continue
		}
		errs = append(errs, named("add neighbour", k.h.NeighSet(neigh(index, unix.AF_UNSPEC, n.ip, n.mac))))
	}
	return errors.Join(errs...)
}

// applyForwards makes the forwarding table of the VXLAN device match the wanted entries.
func (k *kernel) applyForwards(index int, want []forward) error {
	have, err := k.h.NeighList(index, unix.AF_BRIDGE)
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	var errs []error
	keep := map[forward]bool{}
	for i := range have {
		dst, ok := netip.AddrFromSlice(have[i].IP)
		f := forward{have[i].HardwareAddr.String(), dst.Unmap()}
		switch {
		case ok && slices.Contains(want, f):
			keep[f] = true
		case !ok || !slices.ContainsFunc(want, func(x forward) bool { return x.mac == f.mac }):
			have[i].Family, have[i].Flags = unix.AF_BRIDGE, netlink.NTF_SELF
			errs = append(errs, named("remove forwarding entry", k.h.NeighDel(&have[i])))
		}
	}
	for _, f := range want {
		if keep[f] {
			continue
		}
		errs = append(errs, named("add forwarding entry", k.h.NeighSet(neigh(index, unix.AF_BRIDGE, f.dst, f.mac))))
	}
	return errors.Join(errs...)
}

func neigh(index, family int, ip netip.Addr, mac string) *netlink.Neigh {
	hw, _ := net.ParseMAC(mac) // returns no error for a result of hardwareAddress
	n := &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: ip.AsSlice(), HardwareAddr: hw}
	switch {
	case family == unix.AF_BRIDGE:
		n.Family, n.Flags = unix.AF_BRIDGE, netlink.NTF_SELF
	case ip.Is4():
		n.Family = netlink.FAMILY_V4
	default:
		n.Family = netlink.FAMILY_V6
	}
	return n
}

func named(what string, err error) error {
	// ESRCH and ENOENT mean that the entry no longer exists.
	if err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// applyRoutes adds and removes routes of this package so that they match the wanted ones. It
// ignores routes of other protocols.
func (k *kernel) applyRoutes(want []route) error {
	have, err := k.h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var errs []error
	keep := map[route]bool{}
	for i := range have {
		r := k.routeOf(&have[i])
		if slices.Contains(want, r) && !keep[r] {
			keep[r] = true
			continue
		}
		errs = append(errs, named("remove route", k.h.RouteDel(&have[i])))
	}
	for _, r := range want {
		if !keep[r] {
			errs = append(errs, named("add route to "+r.dst.String(), k.addRoute(r)))
		}
	}
	return errors.Join(errs...)
}

// routeOf converts a route of the kernel to a route as the function plan returns it.
func (k *kernel) routeOf(r *netlink.Route) route {
	var out route
	out.dst, _ = prefixOf(r.Dst)
	if r.Type == unix.RTN_UNREACHABLE {
		return out
	}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		out.via = gw.Unmap()
	}
	out.onLink = r.Flags&int(netlink.FLAG_ONLINK) != 0
	if l, err := k.h.LinkByIndex(r.LinkIndex); err == nil {
		out.link = l.Attrs().Name
	}
	return out
}

func (k *kernel) addRoute(r route) error {
	n := &netlink.Route{Dst: ipNet(r.dst), Protocol: routeProtocol}
	if r.link == "" {
		n.Type, n.Priority = unix.RTN_UNREACHABLE, nowherePriority
		return k.h.RouteReplace(n)
	}
	l, err := k.h.LinkByName(r.link)
	if err != nil {
		return err
	}
	n.LinkIndex, n.Gw = l.Attrs().Index, r.via.AsSlice()
	if r.onLink {
		n.SetFlag(netlink.FLAG_ONLINK)
	}
	return k.h.RouteReplace(n)
}
