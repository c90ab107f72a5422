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

// The sets whose elements this package decides.
const (
	// ClusterIPs are the addresses of services: ports of them that no
	// service has are rejected.
	ClusterIPs Set = iota
	// Services maps frontends to classes.
	Services
	// Externals maps frontend.list to a class, for frontends of the external
	// traffic policy Local: what pods and the node itself get (list 0), and
	// what everybody else gets (list 1).
	Externals
	// Frontends maps frontends that are not cluster IPs to the cluster IP,
	// protocol and port of their service, after a word of padding.
	Frontends
	// EndpointSlots maps cluster IP.protocol.port.slot to address.port.
	EndpointSlots
	// StickyEndpoints is the same for services with session affinity; the values have the
	// service's port before the address.
	StickyEndpoints
	// StickyCluster and StickyLocal hold cluster IP.protocol.port.address.port
	// of the endpoints that session affinity may go on with.
	StickyCluster
	StickyLocal
	// Hairpins hold address.address of endpoints on this node: who reaches
	// itself is masqueraded.
	Hairpins
	// Guarded are the frontends that only some sources may use; Sources are
	// frontend.source ranges that may.
	Guarded
	Sources
	// NumSets is how many there are.
	NumSets
)

var setNames = [NumSets]string{
	"cluster-ips", "services", "externals", "frontends", "endpoints", "sticky-endpoints", "sticky-cluster", "sticky-local", "hairpins", "guarded", "sources",
}

// String is the set's name in the kernel.
func (s Set) String() string { return setNames[s] }

// Element is one element of a set. Key and Value are the kernel's bytes; Value is
// empty in sets that are not maps. The key of a range is its first and its
// last key.
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

// Size is how many bytes an address has.
func (f Family) Size() int {
	if f == IPv4 {
		return 4
	}
	return 16
}

// Unspecified is the address that stands for all addresses of a node.
func (f Family) Unspecified() netip.Addr {
	if f == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// String is the family's name as Kubernetes has it.
func (f Family) String() string { return fmt.Sprintf("IPv%d", f) }

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols of services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String is the protocol's name as Kubernetes has it.
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

// Frontend is where packets to a service arrive.
type Frontend struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// frontendRest is how long a frontend's key is after the address.
const frontendRest = 8

// Each field of a key fills whole registers of four bytes: a protocol or a port
// is followed by zeros.
func (f Frontend) key() string {
	b := append(make([]byte, 0, 16+frontendRest), f.Addr.AsSlice()...)
	return string(append(b, byte(f.Protocol), 0, 0, 0, byte(f.Port>>8), byte(f.Port), 0, 0))
}

// udpFrontend parses the key of a frontend of this family. It reports false if the
// protocol is another one than UDP.
func (f Family) udpFrontend(key string) (Frontend, bool) {
	n := f.Size()
	if len(key) != n+frontendRest || Protocol(key[n]) != UDP {
		return Frontend{}, false
	}
	a, _ := netip.AddrFromSlice([]byte(key[:n]))
	return Frontend{a, UDP, binary.BigEndian.Uint16([]byte(key[n+4:]))}, true
}

// mark is a number as the kernel has it in a register.
func mark(n uint32) string {
	return string(binary.NativeEndian.AppendUint32(make([]byte, 0, 4), n))
}

// List is one of the two lists of endpoints that a service may have.
type List uint8

// ClusterList are the endpoints that the traffic policy Cluster may use,
// LocalList those of the policy Local.
const (
	ClusterList List = 0
	LocalList   List = 1
)

// LocalSlots is the slot of the first endpoint of a local list.
const LocalSlots = 1 << 31

func (l List) slot(i int) uint32 { return uint32(l)*LocalSlots + uint32(i) }

func (l List) sticky() Set { return StickyCluster + Set(l) }
