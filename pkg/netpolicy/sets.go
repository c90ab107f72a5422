// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"keelson.dev/keelson/pkg/nft"
)

// kind is what a set holds.
type kind uint8

const (
	none     kind = iota
	podsOf        // addresses of pods
	portsOf       // addresses, protocols and numbers of named ports of pods
	blocks        // ranges of addresses
	numbered      // protocols and ranges of ports
)

// setDef is a set of the table. Its name follows from what it means, so that
// rules of many policies share it.
type setDef struct {
	kind     kind
	name     string
	selector selector // podsOf, portsOf
	port     portName // portsOf
	ranges   []nft.Range
	numbers  []portRange
}

func (k kind) named(content string) string {
	return [...]string{"", "pods-", "ports-", "blocks-", "numbers-"}[k] + hash(content)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:10])
}

func podSet(s selector) setDef {
	return setDef{kind: podsOf, name: podsOf.named(s.key), selector: s}
}

func namedSet(s selector, p portName) setDef {
	return setDef{kind: portsOf, name: portsOf.named(fmt.Sprint(s.key, p)), selector: s, port: p}
}

// blockSet is a block of addresses without some; the zero prefix has none.
func blockSet(p netip.Prefix, except []netip.Prefix) setDef {
	d := setDef{kind: blocks}
	if p.IsValid() {
		d.ranges = nft.Without(p, except)
	}
	d.name = blocks.named(fmt.Sprint(d.ranges))
	return d
}

func portSet(list []portRange) setDef {
	return setDef{kind: numbered, name: numbered.named(fmt.Sprint(list)), numbers: list}
}

// element is a member of a set of pods or of their ports.
type element struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// of returns what a pod that the selector means contributes.
func (d *setDef) of(p *Pod) []element {
	var out []element
	for _, a := range p.IPs {
		if d.kind == podsOf {
			out = append(out, element{addr: a})
			continue
		}
		for _, port := range p.Ports {
			if port.Name == d.port.name && port.Protocol == d.port.protocol {
				out = append(out, element{a, port.Protocol, port.Number})
			}
		}
	}
	return out
}

// chain is the terms by which some pods are allowed, in one direction. Its name follows from
// them.
type chain struct {
	name      string
	direction Direction
	terms     []term
}

func newChain(d Direction, terms []term) *chain {
	var b strings.Builder
	for _, t := range terms {
		fmt.Fprintln(&b, t.peers.name, t.ports.name, t.named.name)
	}
	return &chain{name: d.String() + "-" + hash(b.String()), direction: d, terms: terms}
}

// sets are those that the chain's rules look into.
func (c *chain) sets() []setDef {
	var out []setDef
	for _, t := range c.terms {
		for _, d := range []setDef{t.peers, t.ports, t.named} {
			if d.kind != none {
				out = append(out, d)
			}
		}
	}
	return out
}
