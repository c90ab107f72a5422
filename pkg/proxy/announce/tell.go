// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// Constants of ARP (RFC 826) and neighbour discovery (RFC 4861) packets.
const (
	ethernet         = 1
	arpRequest       = 1
	advertisement    = 136 // type of neighbour advertisements
	routerOverride   = 0xa0
	targetLinkLayer  = 2 // option with the hardware address
	hopLimit         = 255
	hardwareSize     = 6
	protocolSizeIPv4 = 4
)

// tell sends a packet to all neighbours on a link that says that this node now has an address.
func (a *Announcer) tell(ctx context.Context, l link, addr netip.Addr) error {
	payload, protocol := arp(l.Attrs().HardwareAddr, addr), uint16(unix.ETH_P_ARP)
	to := [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if addr.Is6() {
		if !l.self.IsValid() {
			return nil // a link without a link-local address has no IPv6 neighbours
		}
		payload, protocol = neighbour(l.Attrs().HardwareAddr, l.self, addr), unix.ETH_P_IPV6
		to = [8]byte{0x33, 0x33, 0, 0, 0, 1}
	}
	c, err := socket.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0, "announce", &socket.Config{NetNS: a.netNS})
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	defer c.Close()
	// The kernel expects the protocol in network byte order.
	dest := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: l.Attrs().Index,
		Halen: hardwareSize, Addr: to}
	if err := c.Sendto(ctx, payload, 0, dest); err != nil {
		return fmt.Errorf("announce %v on %s: %w", addr, l.Attrs().Name, err)
	}
	return nil
}

// arp returns an ARP announcement (RFC 5227, section 3): a request with addr as both the sender's
// and the requested address. Neighbours update their ARP entries with the sender's hardware
// address.
func arp(hw []byte, addr netip.Addr) []byte {
	b := binary.BigEndian.AppendUint16(nil, ethernet)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, hardwareSize, protocolSizeIPv4)
	b = binary.BigEndian.AppendUint16(b, arpRequest)
	b = append(append(b, hw...), addr.AsSlice()...)
	b = append(b, make([]byte, hardwareSize)...)
	return append(b, addr.AsSlice()...)
}

// neighbour returns an IPv6 packet that advertises addr to all nodes on a link. The argument from
// is the sender's link-local address.
func neighbour(hw []byte, from, addr netip.Addr) []byte {
	all := netip.MustParseAddr("ff02::1")
	body := append([]byte{advertisement, 0, 0, 0, routerOverride, 0, 0, 0}, addr.AsSlice()...)
	body = append(append(body, targetLinkLayer, 1), hw...)
	pseudo := append(from.AsSlice(), all.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
	pseudo = append(pseudo, 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(body[2:], checksum(append(pseudo, body...)))
	head := []byte{6 << 4, 0, 0, 0}
	head = binary.BigEndian.AppendUint16(head, uint16(len(body)))
	head = append(head, unix.IPPROTO_ICMPV6, hopLimit)
	return append(append(append(head, from.AsSlice()...), all.AsSlice()...), body...)
}

// checksum returns the Internet checksum of b (RFC 1071). The length of b must be even.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
