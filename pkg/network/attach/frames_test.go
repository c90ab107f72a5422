// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// patience is the maximum time for which a test waits for a frame.
const patience = 20 * time.Second

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func u16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// ether returns an Ethernet frame.
func ether(to, from net.HardwareAddr, kind int, payload ...[]byte) []byte {
	return join(to, from, u16(kind), join(payload...))
}

// checksum returns the Internet checksum of the parts.
func checksum(parts ...[]byte) []byte {
	var sum uint32
	b := join(parts...)
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	for ; len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return u16(int(^sum & 0xffff))
}

// ip4 returns an IPv4 packet.
func ip4(from, to netip.Addr, protocol byte, payload ...[]byte) []byte {
	body := join(payload...)
	head := join([]byte{0x45, 0}, u16(20+len(body)), []byte{0, 1, 0, 0, 64, protocol, 0, 0}, from.AsSlice(), to.AsSlice())
	copy(head[10:], checksum(head))
	return join(head, body)
}

// ip6 returns an IPv6 packet with hop limit 255, which neighbour discovery requires.
func ip6(from, to netip.Addr, next byte, payload ...[]byte) []byte {
	body := join(payload...)
	return join([]byte{0x60, 0, 0, 0}, u16(len(body)), []byte{next, 255}, from.AsSlice(), to.AsSlice(), body)
}

func udp(from, to int, payload []byte) []byte {
	return join(u16(from), u16(to), u16(8+len(payload)), u16(0), payload)
}

// icmp4 returns an ICMP message.
func icmp4(kind, code byte, payload ...[]byte) []byte {
	body := join(payload...)
	return join([]byte{kind, code}, checksum([]byte{kind, code, 0, 0}, body), body)
}

// icmp6 returns an IPv6 packet with an ICMPv6 message.
func icmp6(from, to netip.Addr, kind byte, payload ...[]byte) []byte {
	body := join(payload...)
	sum := checksum(from.AsSlice(), to.AsSlice(), u16(0), u16(4+len(body)), u16(0), u16(58), []byte{kind, 0, 0, 0}, body)
	return ip6(from, to, 58, []byte{kind, 0}, sum, body)
}

// option returns a neighbour discovery option with a hardware address.
func option(kind byte, m net.HardwareAddr) []byte { return join([]byte{kind, 1}, m) }

// arp returns the content of an ARP frame.
func arp(op int, fromMAC net.HardwareAddr, from netip.Addr, toMAC net.HardwareAddr, to netip.Addr) []byte {
	return join(u16(1), u16(0x0800), []byte{6, 4}, u16(op), fromMAC, from.AsSlice(), toMAC, to.AsSlice())
}

// wire is a packet socket on an interface.
type wire struct {
	t     testing.TB
	fd    int
	index int
}

// openWire opens a packet socket in the namespace with the given file. If file is empty, it opens
// the socket in the test's own namespace.
func openWire(t testing.TB, ns *netlink.Handle, file, link string) *wire {
	t.Helper()
	l, err := ns.LinkByName(link)
	must(t, err)
	w := &wire{t: t, index: l.Attrs().Index}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		done <- func() error {
			err := enter(file)
			if err == nil {
				w.fd, err = openPacketSocket(w.index)
			}
			return err
		}()
	}()
	must(t, <-done)
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

func enter(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

func openPacketSocket(index int) (int, error) {
	all := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, err
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	return fd, errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: index}))
}

// send sends frames in order. It runs on one CPU, because frames that are sent from several CPUs
// may overtake each other.
func (w *wire) send(frames ...[]byte) {
	w.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		done <- func() error {
			var one unix.CPUSet
			if err := unix.SchedGetaffinity(0, &one); err != nil {
				return err
			}
			for cpu := 0; one.Count() > 1; cpu++ {
				one.Clear(cpu)
			}
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return err
			}
			for _, f := range frames {
				if err := unix.Sendto(w.fd, f, 0, &unix.SockaddrLinklayer{Ifindex: w.index}); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	must(w.t, <-done)
}

// seen reads frames until one contains end. It reports whether an earlier frame contained frame.
func (w *wire) seen(frame, end []byte) bool {
	w.t.Helper()
	buf, found := make([]byte, 2048), false
	for {
		n, _, err := unix.Recvfrom(w.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.t.Fatalf("the last frame did not arrive: %v", err)
		}
		found = found || bytes.Contains(buf[:n], frame)
		if bytes.Contains(buf[:n], end) {
			return found
		}
	}
}
