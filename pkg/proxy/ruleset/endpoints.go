// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"strings"
)

// Endpoints is an immutable list of addresses with ports of one IP family. They are stored as bytes
// in the kernel's form to save memory, because a cluster may have very many endpoints. The zero
// value is empty.
type Endpoints struct {
	bytes string
	size  int // length of one endpoint in bytes
}

// portSize is the length of a port in bytes. It fills a whole register.
const portSize = 4

// Pack returns the addresses and ports in the given order. All must be of the same IP family.
func Pack(list []netip.AddrPort) Endpoints {
	if len(list) == 0 {
		return Endpoints{}
	}
	size := Of(list[0].Addr()).Size() + portSize
	b := make([]byte, 0, len(list)*size)
	for _, a := range list {
		b = append(b, a.Addr().AsSlice()...)
		b = append(b, byte(a.Port()>>8), byte(a.Port()), 0, 0)
	}
	return Endpoints{string(b), size}
}

// Len returns the number of endpoints.
func (e Endpoints) Len() int {
	if e.size == 0 {
		return 0
	}
	return len(e.bytes) / e.size
}

// All returns the endpoints in order.
func (e Endpoints) All() iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		for b := range e.each {
			if !yield(parseEndpoint(b)) {
				return
			}
		}
	}
}

// at returns the ith endpoint in the kernel's form.
func (e Endpoints) at(i int) string { return e.bytes[i*e.size : (i+1)*e.size] }

// each is an iterator like All that yields endpoints in the kernel's form.
func (e Endpoints) each(yield func(string) bool) {
	for i := range e.Len() {
		if !yield(e.at(i)) {
			return
		}
	}
}

// of returns a list of endpoints that are already in the kernel's form and of the same family as e.
func (e Endpoints) of(list []string) Endpoints { return Endpoints{strings.Join(list, ""), e.size} }

// parseEndpoint parses an endpoint in the kernel's form. The length of b must be that of an IPv4 or
// IPv6 endpoint.
func parseEndpoint(b string) netip.AddrPort {
	at := len(b) - portSize
	a, _ := netip.AddrFromSlice([]byte(b[:at]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(b[at:])))
}
