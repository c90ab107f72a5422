// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"keelson.dev/keelson/pkg/machine/config"
)

// System is what checks need to know about a machine.
type System struct {
	Root     bool // whether the process is root
	HostName string
	Kernel   string // release of the kernel, such as 6.1.0-37-amd64
	Files    fs.FS  // the machine's root directory
	Now      time.Time
	// Synchronised reports whether the kernel knows that the clock follows a time server.
	Synchronised bool
	Addresses    []Address
	Routes       []Route

	// Writable reports whether the process may write a file or directory.
	Writable func(path string) bool
	// Space returns the space of the file system of a file or directory that exists.
	Space func(path string) (Space, error)
	// Listen returns an error that wraps syscall.EADDRINUSE if another program listens at an address.
	// The network is tcp or udp.
	Listen func(ctx context.Context, network, address string) error
	// Lookup returns the addresses of a host name.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Make makes something in a temporary network namespace, and returns an error if the kernel does not
	// support that.
	Make func(kind Kind) error
}

// Address is an address of a network interface of the machine.
type Address struct {
	Interface string
	netip.Prefix
	// Fleeting is true for addresses that the kernel replaces by itself, and for those that are not in
	// use yet.
	Fleeting bool
}

// Route is a route of the machine. The default routes have prefixes of length 0.
type Route struct {
	Interface string
	netip.Prefix
	Priority int
}

// Space describes a file system.
type Space struct {
	Type        int64 // magic number
	Free, Total uint64
}

// Kind is something in a network namespace.
type Kind string

// The kinds that pod networks and Services need.
const (
	NetworkNamespace Kind = "network namespaces"
	VirtualEthernet  Kind = "veth devices"
	Bridge           Kind = "bridge devices"
	VXLAN            Kind = "vxlan devices"
	PacketFilter     Kind = "nftables"
)

// Facts returns what the defaults of a configuration are derived from. Its addresses are one for each
// IP family: the first lasting address of the interface with the preferred default route.
func (s *System) Facts() config.Facts {
	out := config.Facts{HostName: s.HostName}
	routes := slices.Clone(s.Routes)
	slices.SortStableFunc(routes, func(a, b Route) int { return cmp.Compare(a.Priority, b.Priority) })
	found := map[bool]bool{}
	for _, r := range routes {
		for _, a := range s.Addresses {
			is6 := r.Addr().Is6()
			suits := a.Interface == r.Interface && a.Addr().Is6() == is6 && !a.Fleeting && a.Addr().IsGlobalUnicast()
			if r.Bits() == 0 && suits && !found[is6] {
				found[is6] = true
				out.Addresses = append(out.Addresses, a.Addr())
			}
		}
	}
	// The order of the families is that of Kubernetes: IPv4 first.
	slices.SortStableFunc(out.Addresses, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return out
}
