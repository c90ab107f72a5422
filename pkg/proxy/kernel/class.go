// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

const classPrefix = "pick-"

// dynsetDelete is the kernel's constant NFT_DYNSET_OP_DELETE.
const dynsetDelete = 2

// className returns the name of the chain of a class, which is a way to choose an endpoint. The
// name contains all fields of the class.
func className(c ruleset.Class) string {
	var b strings.Builder
	b.WriteString(classPrefix + [...]string{"ip", "address", "nodeport"}[c.Source] + "-" +
		[...]string{"cluster", "local"}[c.List])
	if c.Masquerade {
		b.WriteString("-masquerade")
	}
	if c.Sticky > 0 {
		fmt.Fprintf(&b, "-sticky-%d", c.Sticky)
	}
	fmt.Fprintf(&b, "-%d", c.N)
	return b.String()
}

// sampleClasses returns classes (ways to choose an endpoint) whose chains together contain every
// rule that such a chain can have.
func sampleClasses() []ruleset.Class {
	var out []ruleset.Class
	for _, source := range []ruleset.Source{ruleset.Direct, ruleset.Address, ruleset.NodePort} {
		for _, l := range []ruleset.List{ruleset.ClusterList, ruleset.LocalList} {
			out = append(out,
				ruleset.Class{Action: ruleset.Pick, Source: source, List: l, N: 3},
				ruleset.Class{Action: ruleset.Pick, Source: source, List: l, N: 3, Sticky: 60, Masquerade: true})
		}
	}
	return out
}

// classRules returns the rules of the chain of a class, which is a way to choose an endpoint. The
// rules choose one of the endpoints of the packet's service and translate the packet's destination
// to it.
//
// Registers have four bytes, and an address fills w of them. The client's address starts at register
// 0. It is followed by the service (cluster IP, protocol and port), and then the endpoint. So client
// and service together are the key of the affinity map. Service and endpoint together are the key of
// the sets of endpoints that a client may keep.
//
// A rule can use the value that it loaded from one map as the key of another map. The kernel accepts
// that, but nft, with which people print tables, aborts on such rules. Therefore each value begins
// with four more bytes, which are loaded into the register before the key. nft then does not take the
// value for the key, and prints what the key's registers had before. If the value is an endpoint, the
// register before it belongs to the service, and has its port. There, the four bytes are that port,
// so that the register keeps its content. Otherwise they are padding.
func (l layout) classRules(c ruleset.Class) [][]expr.Any {
	w := l.Words()
	service, endpoint := w, 2*w+2
	identity := rule(l.identity(c.Source, service), l.Source(0))
	slot := &expr.Numgen{Register: nft.Reg(endpoint), Modulus: c.N, Type: unix.NFT_NG_RANDOM,
		Offset: uint32(c.List) * ruleset.LocalSlots}
	translate := &expr.NAT{Type: expr.NATTypeDestNAT, Family: l.NFProto(), RegAddrMin: nft.Reg(endpoint),
		RegProtoMin: nft.Reg(endpoint + w), Specified: true}
	var rules [][]expr.Any
	if c.Masquerade {
		rules = append(rules, nft.SetMark(l.bit()))
	}
	if c.Sticky == 0 {
		return append(rules, rule(identity, slot, nft.Get(ruleset.EndpointSlots.String(), service, endpoint), translate))
	}
	remember := func(op uint32) expr.Any {
		return &expr.Dynset{
			SrcRegKey: nft.Reg(0), SrcRegData: nft.Reg(endpoint - 1), SetName: setAffinity, Operation: op,
			Timeout: time.Duration(c.Sticky) * time.Second,
		}
	}
	usable := (ruleset.StickyCluster + ruleset.Set(c.List)).String()
	blank := rule(&expr.Immediate{Register: nft.Reg(endpoint), Data: make([]byte, l.Size())},
		&expr.Immediate{Register: nft.Reg(endpoint + w), Data: make([]byte, 4)})
	choose := rule(identity, slot, nft.Get(ruleset.StickyEndpoints.String(), service, endpoint-1))
	return append(rules,
		rule(identity, blank, nft.Get(setAffinity, 0, endpoint-1), identity, nft.Member(usable, service),
			remember(unix.NFT_DYNSET_OP_UPDATE), translate),
		// The client is new, or its endpoint was removed. The endpoint in an existing element
		// cannot be changed, so delete the element first.
		rule(identity, blank, remember(dynsetDelete)),
		rule(blank, choose, identity, remember(unix.NFT_DYNSET_OP_ADD), translate),
		// If the affinity map is full, the previous rule ends without translating, and the endpoint
		// of this client is not stored.
		rule(blank, choose, translate))
}

// identity loads cluster IP, protocol and port into the registers that begin with r. Unless s is
// Direct, it also loads padding into the register before r.
func (l layout) identity(s ruleset.Source, r uint32) []expr.Any {
	switch s {
	case ruleset.Address:
		return rule(l.frontend(r), nft.Get(ruleset.Frontends.String(), r, r-1))
	case ruleset.NodePort:
		return rule(l.nodePort(r), nft.Get(ruleset.Frontends.String(), r, r-1))
	}
	return l.frontend(r)
}

// writeRule writes a rule in the form in which the kernel receives it.
func writeRule(w io.Writer, p nft.Packet, exprs []expr.Any) {
	for _, e := range exprs {
		b, err := expr.Marshal(byte(p.TableFamily()), e)
		fmt.Fprintf(w, "%x %v\n", b, err)
	}
}
