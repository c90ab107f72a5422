// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"strings"
)

// Endpoints is a list of addresses with ports, of one family, which is not changed. There
// may be very many in a cluster: they are kept one after the other as the bytes
// that the kernel takes. The zero value is empty.
type Endpoints struct {
	bytes string
	size  int // of one
}

// portSize is what a port takes after its address: it fills a register.
const portSize = 4

// Pack returns the list as it is; all of it must be of the family of its first.
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

// Len is how many there are.
func (e Endpoints) Len() int {
	if e.size == 0 {
		return 0
	}
	return len(e.bytes) / e.size
}

// All are the endpoints.
func (e Endpoints) All() iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		for b := range e.each {
			if !yield(parseEndpoint(b)) {
				return
			}
		}
	}
}

// at is the ith, in the kernel's form.
func (e Endpoints) at(i int) string { return e.bytes[i*e.size : (i+1)*e.size] }

// each is All in the kernel's form.
func (e Endpoints) each(yield func(string) bool) {
	for i := range e.Len() {
		if !yield(e.at(i)) {
			return
		}
	}
}

// of returns others, of the same family, in the kernel's form.
func (e Endpoints) of(list []string) Endpoints { return Endpoints{strings.Join(list, ""), e.size} }

// parseEndpoint is the endpoint of the kernel's form, which has the size of one of a family.
func parseEndpoint(b string) netip.AddrPort {
	at := len(b) - portSize
	a, _ := netip.AddrFromSlice([]byte(b[:at]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(b[at:])))
}
