// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/keelson/pkg/nft"
)

// kind says what the elements of a set are.
type kind uint8

const (
	none     kind = iota
	podsOf        // the elements are addresses of pods
	portsOf       // the elements are addresses, protocols and port numbers of named ports of pods
	nodesOf       // the elements are addresses of nodes
	blocks        // the elements are ranges of addresses
	numbered      // the elements are protocols and ranges of ports
)

// setDef describes a set of the nftables table. The set's name is derived from the description, so
// that the rules of many policies share one set.
type setDef struct {
	kind     kind
	name     string
	selector selector        // for podsOf and portsOf
	port     portName        // for portsOf
	nodes    labels.Selector // for nodesOf
	ranges   []nft.Range
	numbers  []portRange
}

// kept reports whether the elements of a set of this kind are added and deleted one by one while
// the set exists.
func (k kind) kept() bool { return k == podsOf || k == portsOf || k == nodesOf }

func (k kind) named(content string) string {
	return [...]string{"", "pods-", "ports-", "nodes-", "blocks-", "numbers-"}[k] + hash(content)
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

// blockSet returns the set of an address block minus its exceptions. If p is invalid, the set is
// empty.
func blockSet(p netip.Prefix, except []netip.Prefix) setDef {
	d := setDef{kind: blocks}
	if p.IsValid() {
		d.ranges = nft.Without(p, except)
	}
	d.name = blocks.named(fmt.Sprint(d.ranges))
	return d
}

// networkSet returns the set of a list of address blocks.
func networkSet(list []netip.Prefix) setDef {
	d := setDef{kind: blocks, ranges: nft.Ranges(list)}
	d.name = blocks.named(fmt.Sprint(d.ranges))
	return d
}

func nodeSet(s labels.Selector) setDef {
	return setDef{kind: nodesOf, name: nodesOf.named(text(s)), nodes: s}
}

func portSet(list []portRange) setDef {
	return setDef{kind: numbered, name: numbered.named(fmt.Sprint(list)), numbers: list}
}

// element is an element of a set of pods, nodes or named ports.
type element struct {
	addr     netip.Addr
	protocol uint8
	port     uint16
}

// of returns the elements that a pod adds to a set that matches it.
func (d *setDef) of(p *Pod) []element {
	var out []element
	for _, a := range p.IPs {
		if d.kind == podsOf {
			out = append(out, element{addr: a})
			continue
		}
		for _, port := range p.Ports {
			if port.Name == d.port.name && (d.port.protocol == 0 || port.Protocol == d.port.protocol) {
				out = append(out, element{a, port.Protocol, port.Number})
			}
		}
	}
	return out
}

// ofNode returns the elements that a node adds to a set that matches it.
func (d *setDef) ofNode(n *Node) []element {
	out := make([]element, 0, len(n.IPs))
	for _, a := range n.IPs {
		out = append(out, element{addr: a})
	}
	return out
}

// chain contains the terms (conditions with verdicts) that decide about packets of pods in one
// direction. The chain's name is derived from its content.
type chain struct {
	name      string
	direction Direction
	terms     []term
	otherwise verdict // verdict for packets that match no term
}

func newChain(d Direction, terms []term, otherwise verdict) *chain {
	var b strings.Builder
	for _, t := range terms {
		fmt.Fprintln(&b, t.peers.name, t.ports.name, t.named.name, t.verdict)
	}
	fmt.Fprintln(&b, otherwise)
	return &chain{name: d.String() + "-" + hash(b.String()), direction: d, terms: terms, otherwise: otherwise}
}

// gate identifies an nftables map from addresses of protected pods to chains. The rules look up the
// source of a packet in the maps for egress, and its destination in the maps for ingress.
type gate int

// entrance returns the first gate (map of protected addresses) of a direction. The method passed
// returns the gate for packets that the Admin tier passes to later policies.
func entrance(d Direction) gate { return gate(d) }
func passed(d Direction) gate   { return gate(d) + 2 }

func (g gate) String() string {
	return [...]string{"ingress", "egress", "ingress-passed", "egress-passed"}[g]
}

// sets returns the sets that the rules of the chain use.
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
