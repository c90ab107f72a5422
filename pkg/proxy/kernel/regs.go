// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// reg is the nth register of four bytes; nftables has sixteen. A key is in
// consecutive registers.
func reg(n uint32) uint32 { return unix.NFT_REG32_00 + n }

// words is how many registers an address fills.
func words(f ruleset.Family) uint32 { return uint32(f.Size() / 4) }

// packet makes the expressions that read a packet of a family.
type packet struct{ family ruleset.Family }

func (p packet) source(r uint32) expr.Any { return p.address(r, 12, 8) }
func (p packet) dest(r uint32) expr.Any   { return p.address(r, 16, 24) }

func (p packet) address(r, offset4, offset6 uint32) expr.Any {
	offset := offset4
	if p.family == ruleset.IPv6 {
		offset = offset6
	}
	return &expr.Payload{DestRegister: reg(r), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(p.family.Size())}
}

func (p packet) protocol(r uint32) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(r)}
}

func (p packet) destPort(r uint32) expr.Any {
	return &expr.Payload{DestRegister: reg(r), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// frontend reads the destination into registers r and following.
func (p packet) frontend(r uint32) []expr.Any {
	w := words(p.family)
	return []expr.Any{p.dest(r), p.protocol(r + w), p.destPort(r + w + 1)}
}

// nodePort reads the destination with the unspecified address.
func (p packet) nodePort(r uint32) []expr.Any {
	w := words(p.family)
	return []expr.Any{
		&expr.Immediate{Register: reg(r), Data: make([]byte, p.family.Size())}, p.protocol(r + w), p.destPort(r + w + 1),
	}
}

func (p packet) nfproto() uint32 {
	if p.family == ruleset.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

func (p packet) table() nftables.TableFamily {
	if p.family == ruleset.IPv4 {
		return nftables.TableFamilyIPv4
	}
	return nftables.TableFamilyIPv6
}

// member continues if the registers from r on are in the set.
func member(set string, r uint32) expr.Any { return &expr.Lookup{SourceRegister: reg(r), SetName: set} }

// notMember continues if they are not.
func notMember(set string, r uint32) expr.Any {
	return &expr.Lookup{SourceRegister: reg(r), SetName: set, Invert: true}
}

// get looks the registers from r on up and puts what the map has there into to
// and following; it continues if there is something.
func get(set string, r, to uint32) expr.Any {
	return &expr.Lookup{SourceRegister: reg(r), DestRegister: reg(to), IsDestRegSet: true, SetName: set}
}

// decide looks the registers from r on up in a map of verdicts.
func decide(set string, r uint32) expr.Any {
	return &expr.Lookup{SourceRegister: reg(r), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: set}
}

func jump(chain string) expr.Any { return &expr.Verdict{Kind: expr.VerdictJump, Chain: chain} }

func drop() expr.Any { return &expr.Verdict{Kind: expr.VerdictDrop} }

// reject answers as upstream does in this mode: port unreachable, which a TCP client sees
// as a refused connection.
func (p packet) reject() expr.Any {
	if p.family == ruleset.IPv4 {
		return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}
	}
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 4}
}

// newConnection continues on the first packet of a connection.
func newConnection() []expr.Any {
	const bit = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
	return append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: reg(0)}}, anyBit(bit)...)
}

func anyBit(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: native(bits), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: native(0)},
	}
}

func native(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

// setMark sets a bit of the packet's mark.
func setMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0)},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: native(^bit), Xor: native(bit)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0), SourceRegister: true},
	}
}

// clearMark continues on packets with the bit and takes it away.
func clearMark(bit uint32) []expr.Any {
	out := append([]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0)}}, anyBit(bit)...)
	return append(out,
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0)},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: native(^bit), Xor: native(0)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0), SourceRegister: true})
}

// isLocal continues if the packet's source or destination is an address of this node.
func isLocal(dest bool) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: reg(0), ResultADDRTYPE: true, FlagSADDR: !dest, FlagDADDR: dest},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg(0), Data: native(unix.RTN_LOCAL)},
	}
}

// notLoopback continues if the destination is not a loopback address.
func (p packet) notLoopback() []expr.Any {
	if p.family == ruleset.IPv6 {
		one := make([]byte, 16)
		one[15] = 1
		return []expr.Any{p.dest(0), &expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: one}}
	}
	return []expr.Any{
		p.dest(0),
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: []byte{0xff, 0, 0, 0}, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg(0), Data: []byte{127, 0, 0, 0}},
	}
}

// list writes which list of endpoints a key means.
func list(l ruleset.List, r uint32) expr.Any {
	return &expr.Immediate{Register: reg(r), Data: binary.NativeEndian.AppendUint32(nil, uint32(l))}
}
