// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	bridgeName = "keelson0"
	nodeLink   = "eth0"
)

// setupClusterNetwork sets up the supervisor's network namespace: the bridge that connects the
// nodes, and routes that drop packets to unused addresses of pods and Services. The namespace has
// no connection to the machine's network.
func setupClusterNetwork(c *Config) error {
	if err := setUp("lo"); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	for _, r := range c.IPFamily.ranges() {
		for _, a := range c.controlAddresses() {
			if a.Is4() != r.control.Is4() {
				continue
			}
			if err := addAddress(bridge, netip.PrefixFrom(a, r.bits)); err != nil {
				return err
			}
		}
	}
	for _, s := range []struct{ file, value string }{
		{"ipv4/ip_forward", "1"},
		{"ipv6/conf/all/forwarding", "1"},
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/" + bridgeName + "/send_redirects", "0"},
		{"bridge/bridge-nf-call-iptables", "0"},
		{"bridge/bridge-nf-call-ip6tables", "0"},
	} {
		if err := sysctl(s.file, s.value); err != nil {
			return err
		}
	}
	// Drop packets to unused addresses of pods and Services. Otherwise they would be sent back to
	// the node that they come from.
	for _, r := range c.IPFamily.ranges() {
		for _, unused := range []netip.Prefix{r.Pods, r.Services} {
			route := &netlink.Route{Dst: ipNet(unused), Type: unix.RTN_BLACKHOLE, Priority: 4096}
			if err := netlink.RouteReplace(route); err != nil {
				return fmt.Errorf("route of %s: %w", unused, err)
			}
		}
	}
	return nil
}

// joinNode connects a node: it creates a network link between the bridge and the network namespace
// of the process pid.
func joinNode(n Node, pid int) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	name := fmt.Sprintf("node%d", n.Index)
	if err := leaveNode(n); err != nil {
		return err
	}
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName:      nodeLink,
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link of node %s: %w", n.Name, err)
	}
	return setUp(name)
}

// leaveNode removes a node's network link. The kernel would also remove it, but only some time
// after the node's namespace has ended.
func leaveNode(n Node) error {
	link, err := netlink.LinkByName(fmt.Sprintf("node%d", n.Index))
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link of node %s: %w", n.Name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link of node %s: %w", n.Name, err)
	}
	return nil
}

// setupNodeNetwork sets up the network of a node. It runs inside the node's network namespace.
func setupNodeNetwork(n Node) error {
	if err := setUp("lo"); err != nil {
		return err
	}
	link, err := netlink.LinkByName(nodeLink)
	if err != nil {
		return fmt.Errorf("link %s: %w", nodeLink, err)
	}
	for _, r := range n.IPFamily.ranges() {
		if err := addAddress(link, r.node(n.Index)); err != nil {
			return err
		}
	}
	for _, s := range []struct{ file, value string }{
		{"ipv4/ip_forward", "1"},
		{"ipv6/conf/all/forwarding", "1"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"bridge/bridge-nf-call-iptables", "1"},
		{"bridge/bridge-nf-call-ip6tables", "1"},
	} {
		if err := sysctl(s.file, s.value); err != nil {
			return err
		}
	}
	// A default route is needed, because without a route the kernel rejects connections to a
	// Service's address before it applies the rules of the proxy.
	for _, r := range n.IPFamily.ranges() {
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: r.control.AsSlice()}); err != nil {
			return fmt.Errorf("default route: %w", err)
		}
	}
	return nil
}

func addAddress(link netlink.Link, address netip.Prefix) error {
	a := address.Addr()
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(address.Bits(), a.BitLen())}}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD // skip duplicate address detection: the address is usable at once
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("address of %s: %w", link.Attrs().Name, err)
	}
	return setUp(link.Attrs().Name)
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// sysctl sets a kernel parameter of this network namespace. If the kernel does not have the
// parameter, it does nothing.
func sysctl(name, value string) error {
	file := filepath.Join("/proc/sys/net", name)
	err := os.WriteFile(file, []byte(value), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sysctl: %w", err)
	}
	return nil
}
