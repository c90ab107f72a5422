// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// Set is one of the sets and maps of a table.
type Set uint8

// The sets and maps with elements that this package computes.
const (
	// ClusterIPs are the addresses of services. Packets to other ports of these addresses are
	// rejected.
	ClusterIPs Set = iota
	// Services maps frontends to classes.
	Services
	// Externals maps frontend.list to a class, for frontends with the external traffic policy
	// Local. List 0 is for pods and the node itself, list 1 for other clients.
	Externals
	// Frontends maps frontends that are not cluster IPs to the cluster IP, protocol and port of
	// their service. The value begins with a word of padding.
	Frontends
	// EndpointSlots maps cluster IP.protocol.port.slot to address.port.
	EndpointSlots
	// StickyEndpoints maps the same key for services with session affinity. Its values have the
	// service's port before the address.
	StickyEndpoints
	// StickyCluster and StickyLocal hold cluster IP.protocol.port.address.port of the endpoints
	// that clients with session affinity may keep.
	StickyCluster
	StickyLocal
	// Hairpins hold address.address of endpoints on this node. An endpoint that reaches itself
	// through a service is masqueraded.
	Hairpins
	// Guarded are the frontends that only some sources may use. Sources are ranges of
	// frontend.source that may use them.
	Guarded
	Sources
	// NumSets is the number of sets.
	NumSets
)

var setNames = [NumSets]string{
	"cluster-ips", "services", "externals", "frontends", "endpoints", "sticky-endpoints", "sticky-cluster",
	"sticky-local", "hairpins", "guarded", "sources",
}

// String returns the set's name in the kernel.
func (s Set) String() string { return setNames[s] }

// Element is one element of a set. Key and Value are in the kernel's form. Value is empty in sets
// that are not maps. The key of a range is the first key of the range followed by its last key.
type Element struct {
	Set   Set
	Key   string
	Value string
}

// Family is an IP family.
type Family uint8

// The IP families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Of returns the family of an address.
func Of(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Size returns the length of an address in bytes.
func (f Family) Size() int {
	if f == IPv4 {
		return 4
	}
	return 16
}

// Unspecified returns the address that stands for all addresses of a node.
func (f Family) Unspecified() netip.Addr {
	if f == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// String returns the family's name in the API.
func (f Family) String() string { return fmt.Sprintf("IPv%d", f) }

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols of services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's name in the API.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return strconv.Itoa(int(p))
}

// Frontend is an address, protocol and port at which packets to a service arrive.
type Frontend struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// frontendRest is the length of a frontend's key after the address.
const frontendRest = 8

// key returns the frontend as a key of a set. Each field of a key fills whole registers of four
// bytes, so a protocol or a port is followed by zeros.
func (f Frontend) key() string {
	b := append(make([]byte, 0, 16+frontendRest), f.Addr.AsSlice()...)
	return string(append(b, byte(f.Protocol), 0, 0, 0, byte(f.Port>>8), byte(f.Port), 0, 0))
}

// udpFrontend parses the key of a frontend of this family. It returns false if the protocol is not
// UDP.
func (f Family) udpFrontend(key string) (Frontend, bool) {
	n := f.Size()
	if len(key) != n+frontendRest || Protocol(key[n]) != UDP {
		return Frontend{}, false
	}
	a, _ := netip.AddrFromSlice([]byte(key[:n]))
	return Frontend{a, UDP, binary.BigEndian.Uint16([]byte(key[n+4:]))}, true
}

// mark returns a number in the form that it has in a register.
func mark(n uint32) string {
	return string(binary.NativeEndian.AppendUint32(make([]byte, 0, 4), n))
}

// List is one of the two lists of endpoints that a service may have.
type List uint8

// ClusterList are the endpoints for the traffic policy Cluster, LocalList those for the policy
// Local.
const (
	ClusterList List = 0
	LocalList   List = 1
)

// LocalSlots is the slot of the first endpoint of a local list.
const LocalSlots = 1 << 31

func (l List) slot(i int) uint32 { return uint32(l)*LocalSlots + uint32(i) }

func (l List) sticky() Set { return StickyCluster + Set(l) }
