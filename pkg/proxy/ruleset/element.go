// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// Set identifies one of the sets and maps of an nftables table.
type Set uint8

// The sets and maps whose elements this package computes.
const (
	// ClusterIPs are the cluster IPs of services. Packets to ports of these addresses that no
	// service has are rejected.
	ClusterIPs Set = iota
	// Services maps frontends to classes (ways to choose an endpoint).
	Services
	// Externals maps frontend.list to a class, for frontends with the external traffic policy
	// Local. List 0 is for connections from pods and the node itself, list 1 for other clients.
	Externals
	// Frontends maps frontends (addresses and ports at which clients reach a service) to the cluster
	// IP, protocol and port of their service. It has all frontends except the cluster IPs
	// themselves. Its values begin with four bytes of padding.
	Frontends
	// EndpointSlots maps cluster IP.protocol.port.slot to the address.port of an endpoint. The slots
	// of a service port number its endpoints from 0.
	EndpointSlots
	// StickyEndpoints is EndpointSlots for services with session affinity. Its values begin with
	// the service's port.
	StickyEndpoints
	// StickyCluster and StickyLocal contain the service and the endpoint of each pair, as cluster
	// IP.protocol.service port.endpoint address.endpoint port. A client with session affinity may
	// keep an endpoint only if the set contains the pair.
	StickyCluster
	StickyLocal
	// Hairpins contain address.address of the endpoints on this node. If an endpoint connects to
	// itself through a service, the connection is masqueraded.
	Hairpins
	// Guarded contains the frontends that only some sources may use. Sources contains ranges of
	// frontend.source that may use them.
	Guarded
	Sources
	// NumSets is the number of sets and maps.
	NumSets
)

var setNames = [NumSets]string{
	"cluster-ips", "services", "externals", "frontends", "endpoints", "sticky-endpoints", "sticky-cluster",
	"sticky-local", "hairpins", "guarded", "sources",
}

// String returns the set's name in the kernel.
func (s Set) String() string { return setNames[s] }

// Element is one element of an nftables set or map. Key and Value are bytes in the kernel's form.
// Value is empty if the set is not a map. For a range, Key is the first key of the range followed
// by the last one.
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

// Of returns the IP family of an address.
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

// Unspecified returns the unspecified address of the family, which stands for all addresses of a
// node.
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

// String returns the name that the protocol has in the API.
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

// Frontend is an address, protocol and port at which a service receives packets.
type Frontend struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// frontendRest is the length in bytes of a frontend's key after the address.
const frontendRest = 8

// key returns the frontend as a key of a set. In keys, each field fills whole registers of four
// bytes, so protocol and port are padded with zeros.
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

// mark returns a number as the four bytes that it has in a register.
func mark(n uint32) string {
	return string(binary.NativeEndian.AppendUint32(make([]byte, 0, 4), n))
}

// List identifies one of the two lists of endpoints that a service may have.
type List uint8

// ClusterList is the list for the traffic policy Cluster, LocalList the one for the policy Local.
const (
	ClusterList List = 0
	LocalList   List = 1
)

// LocalSlots is the slot of the first endpoint of a LocalList. The slots of a ClusterList start at
// 0.
const LocalSlots = 1 << 31

func (l List) slot(i int) uint32 { return uint32(l)*LocalSlots + uint32(i) }

func (l List) sticky() Set { return StickyCluster + Set(l) }
