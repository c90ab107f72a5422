// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// flow is a UDP flow. The field to is the destination to which the client sends. The field from is
// the source of the answers: the endpoint, if the destination was translated.
type flow struct{ to, from netip.AddrPort }

// parse reads the addresses of an entry from the kernel's message. It returns false if the entry is
// not a UDP flow. Because a node can have very many entries, parse reads nothing else and allocates
// no memory, unlike netlink.ConntrackTableList.
func parse(m []byte) (flow, bool) {
	var original, reply tuple
	if len(m) < nl.SizeofNfgenmsg {
		return flow{}, false
	}
	for kind, value := range attributes(m[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			original = parseTuple(value)
		case nl.CTA_TUPLE_REPLY:
			reply = parseTuple(value)
		}
	}
	f := flow{to: original.destination(), from: reply.source()}
	return f, original.protocol == unix.IPPROTO_UDP && f.to.IsValid() && f.from.IsValid()
}

// tuple contains the addresses of one direction of an entry. Addresses and ports are in network
// byte order.
type tuple struct {
	protocol         uint8
	src, dst         []byte
	srcPort, dstPort []byte
}

func (t tuple) source() netip.AddrPort      { return addrPort(t.src, t.srcPort) }
func (t tuple) destination() netip.AddrPort { return addrPort(t.dst, t.dstPort) }

// addrPort combines an address and a port. It returns the zero value if one of them is missing.
func addrPort(addr, port []byte) netip.AddrPort {
	a, ok := netip.AddrFromSlice(addr)
	if !ok || len(port) != 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
}

func parseTuple(b []byte) tuple {
	var t tuple
	for kind, nested := range attributes(b) {
		for inner, value := range attributes(nested) {
			switch [2]uint16{kind, inner} {
			case [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V4_SRC}, [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V6_SRC}:
				t.src = value
			case [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V4_DST}, [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V6_DST}:
				t.dst = value
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM}:
				if len(value) > 0 {
					t.protocol = value[0]
				}
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_SRC_PORT}:
				t.srcPort = value
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_DST_PORT}:
				t.dstPort = value
			}
		}
	}
	return t
}

// attributes returns an iterator over the netlink attributes in b: their types, without flags, and
// their values. It stops at a malformed attribute.
func attributes(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			if !yield(kind&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofNlAttr:size]) {
				return
			}
			b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}
