// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// portPatience is the maximum time to wait until the bridge forwards packets of a new port.
	// The plugin checks this every portPoll.
	portPatience = 2 * time.Second
	portPoll     = time.Millisecond
)

// hostEnd returns the name of the node's end of a sandbox's link. It is derived from the owner of
// the addresses (the sandbox and the name of its interface).
func hostEnd(owner types.GCAttachment) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner.ContainerID + "/" + owner.IfName))
	return fmt.Sprintf("veth%010x", h.Sum64()>>24)
}

// hardwareAddr returns the hardware address of the interface that owns an IP address.
func hardwareAddr(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, b[len(b)-4:]...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

// connect links a sandbox with the bridge and configures its addresses. Before it sets the sandbox's
// end up, it limits the bridge's port to these source addresses, so that all packets are checked.
func (p plugin) connect(c *Config, args *skel.CmdArgs, given []netip.Prefix) (*types100.Result, error) {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	sandbox, err := netns.GetFromPath(args.Netns)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	defer sandbox.Close()
	bridge, err := ensureBridge(host, c)
	if err != nil {
		return nil, err
	}
	port, err := addVeth(host, c, args, bridge, sandbox, given[0].Addr())
	if err != nil {
		return nil, err
	}
	err = c.bind(ownerOf(args), given)
	if err == nil {
		err = configure(args, sandbox, given)
	}
	if err == nil {
		err = p.awaitPort(host, port)
	}
	if err != nil {
		return nil, errors.Join(err, host.LinkDel(port), c.unbind(ownerOf(args), addressesOf(given)))
	}
	return resultOf(c, args, given), nil
}

// ensureBridge creates the bridge if it does not exist, and adds its missing addresses.
func ensureBridge(host *netlink.Handle, c *Config) (netlink.Link, error) {
	bridge, err := host.LinkByName(c.Bridge)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		bridge, err = addBridge(host, c)
	}
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	if bridge.Type() != "bridge" {
		return nil, fmt.Errorf("%s is no bridge", c.Bridge)
	}
	for _, s := range c.Subnets {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(gateway(s), s.Bits())), Flags: addressFlags(s.Addr())}
		if err := host.AddrAdd(bridge, addr); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("address of bridge %s: %w", c.Bridge, err)
		}
	}
	if bridge.Attrs().Flags&net.FlagUp == 0 {
		if err := host.LinkSetUp(bridge); err != nil {
			return nil, fmt.Errorf("set bridge %s up: %w", c.Bridge, err)
		}
	}
	return bridge, nil
}

// addBridge creates the bridge with a fixed hardware address. Without one, the bridge's address
// would change with its ports. The bridge ignores router advertisements, because only sandboxes
// could send them.
func addBridge(host *netlink.Handle, c *Config) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = c.Bridge, c.MTU, hardwareAddr(gateway(c.Subnets[0]))
	// EEXIST means that another process of the plugin has created the bridge meanwhile.
	if err := host.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	if err := writeSysctl("ipv6", c.Bridge, "accept_ra", "0"); err != nil {
		return nil, err
	}
	return host.LinkByName(c.Bridge)
}

// addressFlags returns flags that make an IPv6 address usable at once, without duplicate address
// detection. No other host has an allocated address.
func addressFlags(a netip.Addr) int {
	if a.Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

// addVeth creates the link and moves one end into the sandbox. It sets hairpin mode on the port:
// the bridge may send packets back to the port from which they came, so that a sandbox can reach
// itself through a Service.
func addVeth(host *netlink.Handle, c *Config, args *skel.CmdArgs, bridge netlink.Link, sandbox netns.NsHandle,
	addr netip.Addr) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex, attrs.Flags = hostEnd(ownerOf(args)), c.MTU, bridge.Attrs().Index, net.FlagUp
	port := &netlink.Veth{LinkAttrs: attrs, PeerName: args.IfName, PeerHardwareAddr: hardwareAddr(addr),
		PeerNamespace: netlink.NsFd(sandbox)}
	if err := host.LinkAdd(port); err != nil {
		return nil, fmt.Errorf("add link of %s: %w", args.IfName, err)
	}
	if err := host.LinkSetHairpin(port, true); err != nil {
		return nil, errors.Join(fmt.Errorf("hairpin mode: %w", err), host.LinkDel(port))
	}
	return port, nil
}

// configure sets the addresses and routes of the interface in the sandbox.
func configure(args *skel.CmdArgs, sandbox netns.NsHandle, given []netip.Prefix) error {
	inside, err := netlink.NewHandleAt(sandbox, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(args.IfName)
	if err != nil {
		return fmt.Errorf("find %s: %w", args.IfName, err)
	}
	for _, p := range given {
		if p.Addr().Is6() {
			// accept_dad=0 makes IPv6 addresses usable at once. addr_gen_mode=0 derives the
			// link-local address from the hardware address, which is the only link-local address
			// that is bound.
			if err := within(sandbox, func() error {
				return errors.Join(writeSysctl("ipv6", args.IfName, "accept_dad", "0"),
					writeSysctl("ipv6", args.IfName, "addr_gen_mode", "0"))
			}); err != nil {
				return err
			}
		}
		if err := inside.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: addressFlags(p.Addr())}); err != nil {
			return fmt.Errorf("address of %s: %w", args.IfName, err)
		}
	}
	if err := inside.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", args.IfName, err)
	}
	for _, p := range given {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway(p.Masked()).AsSlice()}
		if err := inside.RouteAdd(route); err != nil {
			return fmt.Errorf("default route of %s: %w", args.IfName, err)
		}
	}
	return nil
}

// awaitPort waits until the bridge forwards packets of the port.
func (p plugin) awaitPort(host *netlink.Handle, port netlink.Link) error {
	for begun := p.clock.Now(); ; p.clock.Sleep(portPoll) {
		link, err := host.LinkByIndex(port.Attrs().Index)
		if err != nil {
			return fmt.Errorf("state of the bridge's port: %w", err)
		}
		switch state := link.Attrs().OperState; {
		case state == netlink.OperUp:
			return nil
		case p.clock.Since(begun) > portPatience:
			return fmt.Errorf("the bridge's port %s is %s", link.Attrs().Name, state)
		}
	}
}

// resultOf returns the CNI result: the sandbox's interfaces and addresses.
func resultOf(c *Config, args *skel.CmdArgs, given []netip.Prefix) *types100.Result {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, Interfaces: []*types100.Interface{
		{Name: c.Bridge},
		{Name: hostEnd(ownerOf(args))},
		{Name: args.IfName, Mac: hardwareAddr(given[0].Addr()).String(), Sandbox: args.Netns},
	}}
	for _, p := range given {
		gw, bits := gateway(p.Masked()).AsSlice(), p.Addr().BitLen()
		result.IPs = append(result.IPs, &types100.IPConfig{Interface: types100.Int(2), Address: *ipNet(p), Gateway: gw})
		result.Routes = append(result.Routes,
			&types.Route{Dst: net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}, GW: gw})
	}
	return result
}

// disconnect removes a sandbox's link if it exists. It finds the link by the name of the node's
// end. If the plugin bridge has created the link, it finds the link by the end in the sandbox.
func disconnect(args *skel.CmdArgs) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	removed, err := remove(host, hostEnd(ownerOf(args)))
	if removed || err != nil || args.Netns == "" {
		return err
	}
	sandbox, err := netns.GetFromPath(args.Netns)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer sandbox.Close()
	inside, err := netlink.NewHandleAt(sandbox, unix.NETLINK_ROUTE)
	if errors.Is(err, unix.EINVAL) {
		return nil // the file exists, but no namespace is mounted at it
	}
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer inside.Close()
	_, err = remove(inside, args.IfName)
	return err
}

// remove removes a link and reports whether it existed.
func remove(h *netlink.Handle, name string) (bool, error) {
	link, err := h.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // ENODEV means that the link was removed together with its other end
		return false, fmt.Errorf("remove link %s: %w", name, err)
	}
	return true, nil
}

// connected returns the addresses of a sandbox's interface.
func connected(args *skel.CmdArgs) (map[netip.Prefix]bool, error) {
	sandbox, err := netns.GetFromPath(args.Netns)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	defer sandbox.Close()
	inside, err := netlink.NewHandleAt(sandbox, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(args.IfName)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", args.IfName, err)
	}
	addrs, err := inside.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", args.IfName, err)
	}
	out := map[netip.Prefix]bool{}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok {
			out[p] = true
		}
	}
	return out, nil
}

// within runs f in a network namespace, on an OS thread that ends with f.
func within(ns netns.NsHandle, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// writeSysctl writes a setting of an interface in the calling thread's network namespace. If the
// file does not exist, because the kernel does not support the protocol, it returns no error.
func writeSysctl(protocol, link, name, value string) error {
	path := "/proc/sys/net/" + protocol + "/conf/" + link + "/" + name
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sysctl: %w", err)
	}
	return nil
}
