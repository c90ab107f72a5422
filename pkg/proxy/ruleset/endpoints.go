// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"strings"
)

// Endpoints is an immutable list of addresses with ports of one family. A cluster may have very
// many endpoints, so they are packed as the bytes that the kernel takes. The zero value is empty.
type Endpoints struct {
	bytes string
	size  int // length of one endpoint in bytes
}

// portSize is the length in bytes of a port after its address. A port fills a whole register.
const portSize = 4

// Pack packs a list in its order. All endpoints must be of the family of the first.
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

// each yields the endpoints as All does, but in the kernel's form.
func (e Endpoints) each(yield func(string) bool) {
	for i := range e.Len() {
		if !yield(e.at(i)) {
			return
		}
	}
}

// of packs endpoints of the same family that are in the kernel's form already.
func (e Endpoints) of(list []string) Endpoints { return Endpoints{strings.Join(list, ""), e.size} }

// parseEndpoint parses an endpoint in the kernel's form. It must have the length of an endpoint of
// a family.
func parseEndpoint(b string) netip.AddrPort {
	at := len(b) - portSize
	a, _ := netip.AddrFromSlice([]byte(b[:at]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(b[at:])))
}
