// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/nft"
)

// Names of the sets: the bound ports, and for IPv4 and IPv6 the bound combinations of port,
// hardware address and IP address.
const (
	setPorts = "ports"
	setIPv4  = "ipv4"
	setIPv6  = "ipv6"
)

// The first register of each part of a lookup key: port, hardware address, IP address.
const (
	regPort    = 0
	regMAC     = 4
	regAddress = 6
)

// Numbers of messages and options of ICMP, IGMP, MLD, neighbour discovery and DHCP.
const (
	icmpRedirect     = 5
	igmpQuery        = 0x11
	mldQuery         = 130
	mldReport        = 131
	mldDone          = 132
	routerSolicit    = 133
	routerAdvert     = 134
	neighbourSolicit = 135
	neighbourAdvert  = 136
	redirect         = 137
	mldv2Report      = 143

	optionSource = 1 // option with the source link-layer address
	optionTarget = 2 // option with the target link-layer address

	dhcpServer   = 67
	dhcpv6Server = 547

	// Payload lengths in bytes of solicitations and advertisements: without an option, and with one
	// option that contains a hardware address.
	bareLength, optionLength = 24, 32
)

type chain struct {
	name  string
	hook  *nftables.ChainHook // nil for a chain to which other chains jump
	rules [][]expr.Any
}

// chains returns all chains. A chain comes before the chains that jump to it.
func chains() []chain {
	bound4, bound6 := nft.Member(setIPv4, regPort), nft.Member(setIPv6, regPort)
	hardware := link(regMAC, 6, 6)
	return []chain{
		{name: "arp", rules: [][]expr.Any{
			// Accept only requests and answers for Ethernet and IPv4, because the rule reads addresses at
			// their offsets. Both the frame's source and the ARP sender must be bound.
			rule(network(8, 0, 6), equal(8, 0, 1, 8, 0, 6, 4), network(8, 6, 2), atLeast(8, 0, 1), atMost(8, 0, 2),
				port(), hardware, network(regAddress, 14, 4), bound4, network(regMAC, 8, 6), bound4, accept()),
			drop(),
		}},
		{name: "ipv4", rules: [][]expr.Any{
			// The most frequent protocols come first.
			rule(network(8, 9, 1), equal(8, unix.IPPROTO_TCP), accept()),
			rule(network(8, 9, 1), equal(8, unix.IPPROTO_UDP), transport(8, 0, 2), not(8, big(dhcpServer)...), accept()),
			rule(protocol(unix.IPPROTO_UDP), transport(8, 0, 2), equal(8, big(dhcpServer)...), counted()),
			rule(protocol(unix.IPPROTO_ICMP), transport(8, 0, 1), equal(8, icmpRedirect), counted()),
			rule(protocol(unix.IPPROTO_IGMP), transport(8, 0, 1), equal(8, igmpQuery), counted()),
			rule(accept()), // includes later fragments, because only the first fragment has a transport header
		}},
		{name: "solicitation", rules: discovery(optionSource, network(regAddress, 8, 16))},
		{name: "advertisement", rules: discovery(optionTarget, transport(regAddress, 8, 16))},
		{name: "icmpv6", rules: [][]expr.Any{
			rule(message(neighbourSolicit), gotoChain("solicitation")),
			rule(message(neighbourAdvert), gotoChain("advertisement")),
			rule(message(mldQuery), counted()),
			// Drop router solicitations: no router would answer, and their option sets a
			// neighbour's hardware address.
			rule(message(routerSolicit), counted()),
			rule(message(routerAdvert), counted()),
			rule(message(redirect), counted()),
			rule(accept()),
		}},
		{name: "link-local", rules: [][]expr.Any{
			rule(protocol(unix.IPPROTO_ICMPV6), message(neighbourSolicit), gotoChain("solicitation")),
			rule(protocol(unix.IPPROTO_ICMPV6), message(neighbourAdvert), gotoChain("advertisement")),
			rule(protocol(unix.IPPROTO_ICMPV6), message(mldReport), accept()),
			rule(protocol(unix.IPPROTO_ICMPV6), message(mldDone), accept()),
			rule(protocol(unix.IPPROTO_ICMPV6), message(mldv2Report), accept()),
			drop(),
		}},
		{name: "ipv6", rules: [][]expr.Any{
			rule(linkLocal(24), gotoChain("link-local")),
			rule(linkLocal(8), gotoChain("link-local")),
			rule(network(8, 6, 1), equal(8, unix.IPPROTO_TCP), accept()),
			rule(network(8, 6, 1), equal(8, unix.IPPROTO_UDP), transport(8, 0, 2), not(8, big(dhcpv6Server)...), accept()),
			rule(protocol(unix.IPPROTO_ICMPV6), gotoChain("icmpv6")),
			rule(protocol(unix.IPPROTO_UDP), transport(8, 0, 2), equal(8, big(dhcpv6Server)...), counted()),
			// Drop a packet whose transport protocol cannot be determined, because it could hide
			// one of the messages above.
			rule(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Reg(8)}, not(8, unix.IPPROTO_RAW), accept()),
			drop(),
		}},
		// The chain runs before bridge-netfilter, whose hooks may translate addresses.
		{name: "prerouting", hook: nftables.ChainHookPrerouting, rules: [][]expr.Any{
			rule(etherType(unix.ETH_P_IP), port(), hardware, network(regAddress, 12, 4), bound4, gotoChain("ipv4")),
			rule(etherType(unix.ETH_P_IPV6), port(), hardware, network(regAddress, 8, 16), bound6, gotoChain("ipv6")),
			rule(port(), nft.NotMember(setPorts, regPort), accept()),
			rule(etherType(unix.ETH_P_ARP), gotoChain("arp")),
			// For duplicate address detection, a pod sends a solicitation for a bound address from
			// the unspecified address.
			rule(etherType(unix.ETH_P_IPV6), network(8, 8, 16), equal(8, make([]byte, 16)...), network(8, 6, 1),
				equal(8, unix.IPPROTO_ICMPV6),
				message(neighbourSolicit), port(), hardware, transport(regAddress, 8, 16), bound6, accept()),
			drop(),
		}},
		// Frames to 01:80:c2:00:00:0x are for the bridge itself and pass only this hook. If they
		// were accepted, the bridge would learn their source address.
		{name: "input", hook: nftables.ChainHookInput, rules: [][]expr.Any{
			rule(link(8, 0, 5), equal(8, 0x01, 0x80, 0xc2, 0, 0), port(), nft.Member(setPorts, regPort), counted()),
		}},
	}
}

// discovery returns rules that accept a neighbour discovery message without extension headers if
// the set setIPv6 contains the pair of the frame's source and the IP address in the message. The
// second argument is the expression that loads this address. The message may have one option, which
// must contain the hardware address bound to that IP address. Other messages are dropped, because
// they could hide a second option.
func discovery(option byte, of expr.Any) [][]expr.Any {
	plain := rule(network(8, 6, 1), equal(8, unix.IPPROTO_ICMPV6), network(8, 4, 2))
	bound := rule(port(), of, link(regMAC, 6, 6), nft.Member(setIPv6, regPort))
	return [][]expr.Any{
		rule(plain, equal(8, big(bareLength)...), bound, accept()),
		rule(plain, equal(8, big(optionLength)...), transport(8, 24, 2), equal(8, option, 1), bound,
			transport(regMAC, 26, 6), nft.Member(setIPv6, regPort), accept()),
		drop(),
	}
}

func rule(parts ...any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		switch p := p.(type) {
		case expr.Any:
			out = append(out, p)
		case []expr.Any:
			out = append(out, p...)
		}
	}
	return out
}

func payload(base expr.PayloadBase, r, offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: nft.Reg(r), Base: base, Offset: offset, Len: size}
}

func link(r, offset, size uint32) expr.Any {
	return payload(expr.PayloadBaseLLHeader, r, offset, size)
}

func network(r, offset, size uint32) expr.Any {
	return payload(expr.PayloadBaseNetworkHeader, r, offset, size)
}

// transport returns an expression that loads size bytes from an offset of the transport header into
// register r. It does not match fragments after the first, which have no transport header.
func transport(r, offset, size uint32) expr.Any {
	return payload(expr.PayloadBaseTransportHeader, r, offset, size)
}

func compare(op expr.CmpOp, r uint32, b []byte) expr.Any {
	return &expr.Cmp{Op: op, Register: nft.Reg(r), Data: b}
}

func equal(r uint32, b ...byte) expr.Any   { return compare(expr.CmpOpEq, r, b) }
func not(r uint32, b ...byte) expr.Any     { return compare(expr.CmpOpNeq, r, b) }
func atLeast(r uint32, b ...byte) expr.Any { return compare(expr.CmpOpGte, r, b) }
func atMost(r uint32, b ...byte) expr.Any  { return compare(expr.CmpOpLte, r, b) }

func big(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// etherType matches frames with an EtherType. For a frame with a VLAN tag it compares the tag's
// type.
func etherType(n uint16) []expr.Any { return rule(link(8, 12, 2), equal(8, big(n)...)) }

func port() expr.Any {
	return &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: nft.Reg(regPort)}
}

// protocol matches packets of a transport protocol. It skips extension headers.
func protocol(n byte) []expr.Any {
	return rule(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: nft.Reg(8)}, equal(8, n))
}

// message matches ICMPv6 messages of a type.
func message(n byte) []expr.Any { return rule(transport(8, 0, 1), equal(8, n)) }

// linkLocal matches packets whose IPv6 address at an offset of the header is in fe80::/10.
func linkLocal(offset uint32) []expr.Any {
	return rule(network(8, offset, 2),
		&expr.Bitwise{SourceRegister: nft.Reg(8), DestRegister: nft.Reg(8), Len: 2, Mask: []byte{0xff, 0xc0},
			Xor: []byte{0, 0}},
		equal(8, 0xfe, 0x80))
}

func accept() expr.Any { return &expr.Verdict{Kind: expr.VerdictAccept} }

func gotoChain(name string) expr.Any { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: name} }

// counted drops the packet and counts it; "nft list table" shows the counter.
func counted() []expr.Any { return []expr.Any{&expr.Counter{}, nft.Drop()} }

func drop() []expr.Any { return counted() }

// layout returns the name of an empty chain that marks the version of a table's rules. The name has
// a hash of all rules, so a table that an older or newer version of this program wrote has a chain
// with another name.
func layout(list []chain) (string, error) {
	h := sha256.New()
	for _, c := range list {
		fmt.Fprintln(h, c.name, c.hook != nil)
		for _, r := range c.rules {
			fmt.Fprintln(h, len(r))
			for _, e := range r {
				b, err := expr.Marshal(unix.NFPROTO_BRIDGE, e)
				if err != nil {
					return "", fmt.Errorf("expression: %w", err)
				}
				fmt.Fprintln(h, hex.EncodeToString(b))
			}
		}
	}
	return "layout-" + hex.EncodeToString(h.Sum(nil)[:8]), nil
}
