// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Reg returns nftables' number of the nth register of four bytes. There are sixteen of them. A key
// fills consecutive registers.
func Reg(n uint32) uint32 { return unix.NFT_REG32_00 + n }

// Packet returns expressions that load parts of IPv4 or IPv6 packets.
type Packet struct{ IPv6 bool }

// Size returns the length of an address in bytes.
func (p Packet) Size() int {
	if p.IPv6 {
		return 16
	}
	return 4
}

// Words returns the number of registers that an address fills.
func (p Packet) Words() uint32 { return uint32(p.Size() / 4) }

// Source loads the source address into the registers from r.
func (p Packet) Source(r uint32) expr.Any { return p.address(r, 12, 8) }

// Dest loads the destination address into the registers from r.
func (p Packet) Dest(r uint32) expr.Any { return p.address(r, 16, 24) }

func (p Packet) address(r, offset4, offset6 uint32) expr.Any {
	offset := offset4
	if p.IPv6 {
		offset = offset6
	}
	return &expr.Payload{DestRegister: Reg(r), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(p.Size())}
}

// Protocol loads the number of the transport protocol into register r.
func (p Packet) Protocol(r uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: Reg(r)}
}

// DestPort loads the destination port of a TCP, UDP or SCTP packet into register r.
func (p Packet) DestPort(r uint32) expr.Any {
	return &expr.Payload{DestRegister: Reg(r), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// NFProto returns the address family as the expression for address translation needs it.
func (p Packet) NFProto() uint32 {
	if !p.IPv6 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

// TableFamily returns the family of tables for these packets.
func (p Packet) TableFamily() nftables.TableFamily {
	if !p.IPv6 {
		return nftables.TableFamilyIPv4
	}
	return nftables.TableFamilyIPv6
}

// Member matches if the value in the registers that begin with r is in the set. If an expression
// does not match, the kernel skips the rest of the rule.
func Member(set string, r uint32) expr.Any { return &expr.Lookup{SourceRegister: Reg(r), SetName: set} }

// NotMember matches if the value in the registers that begin with r is not in the set.
func NotMember(set string, r uint32) expr.Any {
	return &expr.Lookup{SourceRegister: Reg(r), SetName: set, Invert: true}
}

// Get looks up a key in a map and loads its value. The key is in the registers that begin with r,
// and the value is stored in those that begin with the second argument. The rule matches only if the
// map contains the key.
func Get(set string, r, to uint32) expr.Any {
	return &expr.Lookup{SourceRegister: Reg(r), DestRegister: Reg(to), IsDestRegSet: true, SetName: set}
}

// Decide looks up a key in a map of verdicts, and applies the verdict. The key is in the registers
// that begin with r.
func Decide(set string, r uint32) expr.Any {
	return &expr.Lookup{SourceRegister: Reg(r), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: set}
}

// Jump continues with the rules of another chain. After the end of that chain, the rules of the
// calling chain continue.
func Jump(chain string) expr.Any { return &expr.Verdict{Kind: expr.VerdictJump, Chain: chain} }

// Drop drops the packet.
func Drop() expr.Any { return &expr.Verdict{Kind: expr.VerdictDrop} }

// Reject rejects the packet with "port unreachable", as kube-proxy does in its nftables mode. A TCP
// client gets "connection refused".
func (p Packet) Reject() expr.Any {
	if !p.IPv6 {
		return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}
	}
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 4}
}

// NewConnection matches if the packet begins a connection.
func NewConnection() []expr.Any {
	const bit = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
	return append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: Reg(0)}}, AnyBit(bit)...)
}

// AnyBit matches if register 0 contains any of the bits.
func AnyBit(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: Reg(0), DestRegister: Reg(0), Len: 4, Mask: Native(bits), Xor: Native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: Reg(0), Data: Native(0)},
	}
}

// NeighborDiscovery matches if the packet is an ICMPv6 message of neighbour discovery.
func NeighborDiscovery() []expr.Any {
	const first, last = 133, 137 // ICMPv6 types from router solicitation to redirect
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: Reg(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: Reg(0), Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: Reg(0), Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGte, Register: Reg(0), Data: []byte{first}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: Reg(0), Data: []byte{last}},
	}
}

// Native returns a number as the four bytes that it has in a register.
func Native(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

// SetMark sets a bit of the packet's mark and keeps the other bits.
func SetMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: Reg(0)},
		&expr.Bitwise{SourceRegister: Reg(0), DestRegister: Reg(0), Len: 4, Mask: Native(^bit), Xor: Native(bit)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: Reg(0), SourceRegister: true},
	}
}

// ClearMark clears a bit of the packet's mark. The rule matches only if the bit was set.
func ClearMark(bit uint32) []expr.Any {
	out := append([]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: Reg(0)}}, AnyBit(bit)...)
	return append(out,
		&expr.Meta{Key: expr.MetaKeyMARK, Register: Reg(0)},
		&expr.Bitwise{SourceRegister: Reg(0), DestRegister: Reg(0), Len: 4, Mask: Native(^bit), Xor: Native(0)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: Reg(0), SourceRegister: true})
}

// IsLocal matches if the packet's destination (if dest is true) or source is an address of this
// node.
func IsLocal(dest bool) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: Reg(0), ResultADDRTYPE: true, FlagSADDR: !dest, FlagDADDR: dest},
		&expr.Cmp{Op: expr.CmpOpEq, Register: Reg(0), Data: Native(unix.RTN_LOCAL)},
	}
}

// NotLoopback matches if the destination address is not a loopback address.
func (p Packet) NotLoopback() []expr.Any {
	if p.IPv6 {
		one := make([]byte, 16)
		one[15] = 1
		return []expr.Any{p.Dest(0), &expr.Cmp{Op: expr.CmpOpNeq, Register: Reg(0), Data: one}}
	}
	return []expr.Any{
		p.Dest(0),
		&expr.Bitwise{SourceRegister: Reg(0), DestRegister: Reg(0), Len: 4, Mask: []byte{0xff, 0, 0, 0},
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: Reg(0), Data: []byte{127, 0, 0, 0}},
	}
}
