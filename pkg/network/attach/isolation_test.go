// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"keelson.dev/keelson/pkg/network/ports"
	"keelson.dev/keelson/pkg/nft"
)

// dualStack contains the address ranges that most tests use.
const dualStack = `"10.9.0.0/24", "fd09::/64"`

// testSandbox is an attached sandbox with its addresses.
type testSandbox struct {
	*wire
	rt     *libcni.RuntimeConf
	inside *netlink.Handle
	mac    net.HardwareAddr
	v4, v6 netip.Addr
	local  netip.Addr // link-local address of the sandbox
}

// attachSandbox attaches a sandbox, which must get the address with the given number in each range.
func (n *network) attachSandbox(id string, number int) *testSandbox {
	n.t.Helper()
	rt, inside := sandbox(n.t, id)
	_, err := n.add(rt)
	must(n.t, err)
	r := &testSandbox{rt: rt, inside: inside, mac: mac(fmt.Sprintf("0a:58:0a:09:00:%02x", number))}
	r.v4, r.v6 = ip(fmt.Sprintf("10.9.0.%d", number)), ip(fmt.Sprintf("fd09::%d", number))
	r.local = ip(fmt.Sprintf("fe80::858:aff:fe09:%d", number))
	r.wire = openWire(n.t, inside, rt.NetNS, "eth0")
	return r
}

// bridgeLab is a bridge with three sandboxes: alice, bob and the attacker mallory.
type bridgeLab struct {
	*network
	mallory, alice, bob *testSandbox
	gateway             net.HardwareAddr
}

func newBridgeLab(t *testing.T) *bridgeLab {
	n := newNetwork(t, dualStack)
	return &bridgeLab{network: n, mallory: n.attachSandbox("mallory", 2), alice: n.attachSandbox("alice", 3),
		bob: n.attachSandbox("bob", 4), gateway: mac("0a:58:0a:09:00:01")}
}

// end returns a frame that the sandbox is allowed to send, with payload as content. Tests send it
// after other frames, to notice that these have been handled.
func (r *testSandbox) end(to *testSandbox, payload []byte) []byte {
	return ether(to.mac, r.mac, 0x0800, ip4(r.v4, to.v4, 17, udp(1, 2, payload)))
}

// arrives makes mallory send frame, and reports whether alice receives a frame that contains found.
// number makes the frame that mallory sends last unique.
func (w *bridgeLab) arrives(number int, frame, found []byte) bool {
	w.t.Helper()
	end := fmt.Appendf(nil, "end of %06d", number)
	w.mallory.send(frame, w.mallory.end(w.alice, end))
	return w.alice.seen(found, end)
}

var (
	broadcast = mac("ff:ff:ff:ff:ff:ff")
	allNodes  = mac("33:33:00:00:00:01")
	another   = mac("02:00:00:00:00:99")
)

// solicited returns the multicast IP address and hardware address to which a solicitation of an
// address is sent.
func solicited(a netip.Addr) (netip.Addr, net.HardwareAddr) {
	b := a.As16()
	group := ip("ff02::1:ff00:0").As16()
	copy(group[13:], b[13:])
	return netip.AddrFrom16(group), net.HardwareAddr{0x33, 0x33, group[12], group[13], group[14], group[15]}
}

// attacks returns frames that mallory must not be able to send to alice.
func (w *bridgeLab) attacks() map[string][]byte {
	m, a, b := w.mallory, w.alice, w.bob
	free4, free6 := ip("10.9.0.99"), ip("fd09::99")
	data := udp(7, 7, []byte("attack"))
	group, groupMAC := solicited(a.v6)
	na := func(from, target netip.Addr, options ...[]byte) []byte {
		return ether(a.mac, m.mac, 0x86dd, icmp6(from, a.v6, 136, []byte{0x20, 0, 0, 0}, target.AsSlice(), join(options...)))
	}
	ns := func(from netip.Addr, options ...[]byte) []byte {
		return ether(groupMAC, m.mac, 0x86dd, icmp6(from, group, 135, make([]byte, 4), a.v6.AsSlice(), join(options...)))
	}
	inner := ip4(a.v4, ip("203.0.113.1"), 17, udp(1, 2, make([]byte, 8)))
	ra := join([]byte{64, 0x80, 0, 60}, make([]byte, 8), option(1, m.mac))
	spoofed4, own4 := ip4(b.v4, a.v4, 17, data), ip4(m.v4, a.v4, 17, data)
	return map[string][]byte{
		"IPv4 source of another sandbox":                      ether(a.mac, m.mac, 0x0800, spoofed4),
		"IPv4 source and hardware address of another sandbox": ether(a.mac, b.mac, 0x0800, spoofed4),
		"own IPv4 source, another hardware address":           ether(a.mac, another, 0x0800, own4),
		"IPv4 source is the receiver's":                       ether(a.mac, m.mac, 0x0800, ip4(a.v4, a.v4, 17, data)),
		"IPv4 source of the node": ether(a.mac, m.mac, 0x0800,
			ip4(ip("10.9.0.1"), a.v4, 17, data)),
		"free IPv4 source": ether(a.mac, m.mac, 0x0800, ip4(free4, a.v4, 17, data)),
		"IPv4 source outside of the range": ether(a.mac, m.mac, 0x0800,
			ip4(ip("10.10.0.5"), a.v4, 17, data)),
		"unspecified IPv4 source": ether(a.mac, m.mac, 0x0800,
			ip4(ip("0.0.0.0"), a.v4, 17, data)),
		"IPv6 source of another sandbox":            ether(a.mac, m.mac, 0x86dd, ip6(b.v6, a.v6, 17, data)),
		"own IPv6 source, another hardware address": ether(a.mac, another, 0x86dd, ip6(m.v6, a.v6, 17, data)),
		"free IPv6 source":                          ether(a.mac, m.mac, 0x86dd, ip6(free6, a.v6, 17, data)),
		"link-local source of another sandbox": ether(a.mac, m.mac, 0x86dd,
			icmp6(b.local, a.local, 128, data)),
		"data to a link-local address":   ether(a.mac, m.mac, 0x86dd, ip6(m.v6, a.local, 17, data)),
		"data from a link-local address": ether(a.mac, m.mac, 0x86dd, ip6(m.local, a.v6, 17, data)),
		"ARP reply for another sandbox":  ether(a.mac, m.mac, 0x0806, arp(2, m.mac, b.v4, a.mac, a.v4)),
		"ARP reply for the gateway": ether(a.mac, m.mac, 0x0806,
			arp(2, m.mac, ip("10.9.0.1"), a.mac, a.v4)),
		"ARP reply with another hardware address": ether(a.mac, m.mac, 0x0806,
			arp(2, another, m.v4, a.mac, a.v4)),
		"gratuitous ARP for another sandbox": ether(broadcast, m.mac, 0x0806,
			arp(1, m.mac, b.v4, broadcast, b.v4)),
		"gratuitous ARP for a free address": ether(broadcast, m.mac, 0x0806,
			arp(1, m.mac, free4, broadcast, free4)),
		"ARP request as another sandbox": ether(broadcast, m.mac, 0x0806,
			arp(1, m.mac, b.v4, make([]byte, 6), a.v4)),
		"reverse ARP": ether(a.mac, m.mac, 0x8035, arp(4, b.mac, b.v4, m.mac, m.v4)),
		"neighbour advertisement of another sandbox": na(m.v6, b.v6, option(2, m.mac)),
		"neighbour advertisement of the gateway":     na(m.v6, ip("fd09::1"), option(2, m.mac)),
		"neighbour advertisement of a free address":  na(m.v6, free6, option(2, m.mac)),
		"advertised with another hardware address":   na(m.v6, m.v6, option(2, another)),
		"advertised with two hardware addresses":     na(m.v6, m.v6, option(2, m.mac), option(2, another)),
		"advertisement with another's source":        na(b.v6, m.v6, option(2, m.mac)),
		"advertisement behind an extension header": ether(a.mac, m.mac, 0x86dd,
			ip6(m.v6, a.v6, 60, []byte{58, 0, 1, 4, 0, 0, 0, 0},
				icmp6(m.v6, a.v6, 136, []byte{0x20, 0, 0, 0}, b.v6.AsSlice(), option(2, m.mac))[40:])),
		"solicitation as another sandbox":            ns(b.v6, option(1, m.mac)),
		"solicitation with another hardware address": ns(m.v6, option(1, another)),
		"router advertisement":                       ether(allNodes, m.mac, 0x86dd, icmp6(m.local, ip("ff02::1"), 134, ra)),
		"router advertisement behind an extension header": ether(allNodes, m.mac, 0x86dd,
			ip6(m.local, ip("ff02::1"), 60, []byte{58, 0, 1, 4, 0, 0, 0, 0},
				icmp6(m.local, ip("ff02::1"), 134, ra)[40:])),
		"ICMP redirect": ether(a.mac, m.mac, 0x0800,
			ip4(m.v4, a.v4, 1, icmp4(5, 1, m.v4.AsSlice(), inner[:28]))),
		"ICMPv6 redirect": ether(a.mac, m.mac, 0x86dd,
			icmp6(m.local, a.v6, 137, make([]byte, 4), m.local.AsSlice(), b.v6.AsSlice())),
		"IGMP query": ether(mac("01:00:5e:00:00:01"), m.mac, 0x0800,
			ip4(m.v4, ip("224.0.0.1"), 2, icmp4(0x11, 100, make([]byte, 4)))),
		"MLD query":                  ether(allNodes, m.mac, 0x86dd, icmp6(m.local, ip("ff02::1"), 130, make([]byte, 20))),
		"DHCP answer":                ether(a.mac, m.mac, 0x0800, ip4(m.v4, a.v4, 17, udp(67, 68, []byte("attack")))),
		"DHCPv6 answer":              ether(a.mac, m.mac, 0x86dd, ip6(m.v6, a.v6, 17, udp(547, 546, []byte("attack")))),
		"802.1Q tag":                 ether(a.mac, m.mac, 0x8100, u16(5), u16(0x0800), spoofed4),
		"802.1Q priority":            ether(a.mac, m.mac, 0x8100, u16(0xe000), u16(0x0800), own4),
		"802.1ad tag":                ether(a.mac, m.mac, 0x88a8, u16(5), u16(0x0800), own4),
		"two tags":                   ether(a.mac, m.mac, 0x88a8, u16(5), u16(0x8100), u16(6), u16(0x0800), own4),
		"PPPoE":                      ether(a.mac, m.mac, 0x8864, []byte{0x11, 0, 0, 1}, u16(len(own4)+2), u16(0x21), own4),
		"LLC frame":                  ether(a.mac, m.mac, 9, []byte{0xaa, 0xaa, 3}, []byte("attack")),
		"an unknown type":            ether(a.mac, m.mac, 0x88b5, []byte("attack")),
		"spanning tree":              ether(mac("01:80:c2:00:00:00"), m.mac, 38, make([]byte, 38), []byte("attack")),
		"truncated extension header": ether(a.mac, m.mac, 0x86dd, ip6(m.v6, a.v6, 60, []byte{58})),
	}
}

// TestAttacks checks that frames that a sandbox must not send do not reach its neighbour.
func TestAttacks(t *testing.T) {
	w := newBridgeLab(t)
	number := 0
	for name, frame := range w.attacks() {
		number++
		found := frame[14:]
		if frame[12] == 0x81 || frame[12] == 0x88 { // search for the content without the tag, because receivers remove it
			found = frame[18:]
		}
		if w.arrives(number, frame, found) {
			t.Errorf("%s arrived", name)
		}
	}
}

// TestLegitimate checks that the frames that a sandbox must be able to send arrive.
func TestLegitimate(t *testing.T) {
	w := newBridgeLab(t)
	m, a := w.mallory, w.alice
	group, groupMAC := solicited(a.v6)
	own, ownMAC := solicited(m.v6)
	reports := ip("ff02::16")
	data := []byte("welcome")
	number := 0
	for name, frame := range map[string][]byte{
		"UDP":                      ether(a.mac, m.mac, 0x0800, ip4(m.v4, a.v4, 17, udp(7, 7, data))),
		"UDP on IPv6":              ether(a.mac, m.mac, 0x86dd, ip6(m.v6, a.v6, 17, udp(7, 7, data))),
		"another protocol":         ether(a.mac, m.mac, 0x0800, ip4(m.v4, a.v4, 132, data)),
		"another protocol on IPv6": ether(a.mac, m.mac, 0x86dd, ip6(m.v6, a.v6, 132, data)),
		"echo request":             ether(a.mac, m.mac, 0x0800, ip4(m.v4, a.v4, 1, icmp4(8, 0, data))),
		"destination options": ether(a.mac, m.mac, 0x86dd,
			ip6(m.v6, a.v6, 60, []byte{17, 0, 1, 4, 0, 0, 0, 0}, udp(7, 7, data))),
		"first fragment": ether(a.mac, m.mac, 0x86dd,
			ip6(m.v6, a.v6, 44, []byte{17, 0, 0, 1, 0, 0, 0, 1}, udp(7, 7, make([]byte, 1024)), data)),
		"echo request on IPv6": ether(a.mac, m.mac, 0x86dd, icmp6(m.v6, a.v6, 128, data)),
		"ARP request":          ether(broadcast, m.mac, 0x0806, arp(1, m.mac, m.v4, make([]byte, 6), a.v4)),
		"ARP reply":            ether(a.mac, m.mac, 0x0806, arp(2, m.mac, m.v4, a.mac, a.v4)),
		"gratuitous ARP":       ether(broadcast, m.mac, 0x0806, arp(1, m.mac, m.v4, broadcast, m.v4)),
		"solicitation": ether(groupMAC, m.mac, 0x86dd,
			icmp6(m.v6, group, 135, make([]byte, 4), a.v6.AsSlice(), option(1, m.mac))),
		"solicitation, unicast": ether(a.mac, m.mac, 0x86dd, icmp6(m.v6, a.v6, 135, make([]byte, 4), a.v6.AsSlice())),
		"link-local neighbours": ether(groupMAC, m.mac, 0x86dd,
			icmp6(m.local, group, 135, make([]byte, 4), a.v6.AsSlice(), option(1, m.mac))),
		"duplicate detection": ether(ownMAC, m.mac, 0x86dd,
			icmp6(ip("::"), own, 135, make([]byte, 4), m.v6.AsSlice(), []byte{14, 1, 1, 2, 3, 4, 5, 6})),
		"the same without nonce": ether(ownMAC, m.mac, 0x86dd,
			icmp6(ip("::"), own, 135, make([]byte, 4), m.local.AsSlice())),
		"advertisement": ether(a.mac, m.mac, 0x86dd,
			icmp6(m.v6, a.v6, 136, []byte{0x60, 0, 0, 0}, m.v6.AsSlice(), option(2, m.mac))),
		"short advertisement": ether(a.mac, m.mac, 0x86dd,
			icmp6(m.v6, a.v6, 136, []byte{0x60, 0, 0, 0}, m.v6.AsSlice())),
		"to all nodes": ether(allNodes, m.mac, 0x86dd,
			icmp6(m.v6, ip("ff02::1"), 136, []byte{0x20, 0, 0, 0}, m.v6.AsSlice(), option(2, m.mac))),
	} {
		number++
		if !w.arrives(number, frame, frame[14:]) {
			t.Errorf("%s did not arrive", name)
		}
	}
	// The bridge receives reports of multicast groups, but does not forward them to ports without a
	// multicast router.
	bridge := openWire(t, w.host(), "", "br0")
	report := icmp6(m.local, reports, 143, []byte{0, 0, 0, 1, 4, 0, 0, 0}, own.AsSlice())
	end := []byte("end of reports")
	m.send(ether(mac("33:33:00:00:00:16"), m.mac, 0x86dd,
		ip6(m.local, reports, 0, []byte{58, 0, 5, 2, 0, 0, 1, 0}, report[40:])),
		ether(w.gateway, m.mac, 0x0800, ip4(m.v4, ip("10.9.0.1"), 17, udp(1, 2, end))))
	if !bridge.seen(report[40:], end) {
		t.Error("the bridge did not receive the group report")
	}
}

// host returns a handle for the namespace that contains the bridge.
func (n *network) host() *netlink.Handle {
	n.t.Helper()
	h, err := netlink.NewHandle()
	must(n.t, err)
	n.t.Cleanup(h.Close)
	return h
}

// TestPoisonedForwarding checks that the bridge does not learn another sandbox's hardware address
// at the port of the sender, if the frame is to an address that is reserved for bridges.
func TestPoisonedForwarding(t *testing.T) {
	w := newBridgeLab(t)
	w.alice.send(w.alice.end(w.bob, []byte("alice is here")))
	w.bob.seen(nil, []byte("alice is here"))
	w.mallory.send(ether(mac("01:80:c2:00:00:02"), w.alice.mac, 0x8809, []byte("attack")),
		w.mallory.end(w.bob, []byte("poisoned")))
	w.bob.seen(nil, []byte("poisoned"))
	w.bob.send(w.bob.end(w.alice, []byte("a secret")), w.bob.end(w.mallory, []byte("nothing")))
	if w.mallory.seen([]byte("a secret"), []byte("nothing")) {
		t.Error("mallory received a frame for alice")
	}
}

// TestPoisonedNeighbour checks that attacks do not change the neighbour entries of a sandbox and of
// the node.
func TestPoisonedNeighbour(t *testing.T) {
	w := newBridgeLab(t)
	m, a, b := w.mallory, w.alice, w.bob
	eth0, err := a.inside.LinkByName("eth0")
	must(t, err)
	bridge, err := w.host().LinkByName("br0")
	must(t, err)
	for _, victim := range []struct {
		h    *netlink.Handle
		link netlink.Link
		mac  net.HardwareAddr
		v4   netip.Addr
		v6   netip.Addr
	}{{a.inside, eth0, a.mac, a.v4, a.v6}, {w.host(), bridge, w.gateway, ip("10.9.0.1"), ip("fd09::1")}} {
		for _, known := range []netip.Addr{b.v4, b.v6} {
			must(t, victim.h.NeighSet(&netlink.Neigh{LinkIndex: victim.link.Attrs().Index,
				State: netlink.NUD_STALE, IP: known.AsSlice(), HardwareAddr: b.mac}))
		}
		m.send(ether(victim.mac, m.mac, 0x0806, arp(1, m.mac, b.v4, make([]byte, 6), victim.v4)),
			ether(victim.mac, m.mac, 0x86dd, icmp6(m.v6, victim.v6, 136, []byte{0x20, 0, 0, 0}, b.v6.AsSlice(),
				option(2, m.mac))),
			m.end(a, []byte("poisoned")))
		a.seen(nil, []byte("poisoned"))
		found, err := victim.h.NeighList(victim.link.Attrs().Index, netlink.FAMILY_ALL)
		must(t, err)
		for _, n := range found {
			if addr, _ := netip.AddrFromSlice(n.IP); (addr == b.v4 || addr == b.v6) &&
				n.HardwareAddr.String() != b.mac.String() {
				t.Errorf("%s is taken for the one of %s", n.HardwareAddr, addr)
			}
		}
	}
}

// bound returns the number of elements in the sets of the table of bindings.
func (n *network) bound() int {
	n.t.Helper()
	conn, err := nft.Open(0)
	must(n.t, err)
	defer conn.Close()
	total := 0
	table := &nftables.Table{Name: ports.TableName, Family: nftables.TableFamilyBridge}
	for _, set := range []string{"ports", "ipv4", "ipv6"} {
		elements, err := conn.GetSetElements(&nftables.Set{Table: table, Name: set})
		must(n.t, err)
		total += len(elements)
	}
	return total
}

// TestUnbound checks that a detached sandbox leaves no elements in the table, for each way to
// detach it.
func TestUnbound(t *testing.T) {
	const each = 4 // elements per sandbox: the port, and an IPv4, an IPv6 and a link-local address
	n := newNetwork(t, dualStack)
	kept := n.attachSandbox("kept", 2)
	if n.bound() != each {
		t.Errorf("bound: %d", n.bound())
	}
	for name, end := range map[string]func(rt *libcni.RuntimeConf){
		"detached":                 n.del,
		"detached when it is gone": func(rt *libcni.RuntimeConf) { rt.NetNS = ""; n.del(rt) },
		"collected": func(rt *libcni.RuntimeConf) {
			n.del(&libcni.RuntimeConf{ContainerID: "x", IfName: "eth0"}) // a sandbox that was never attached
			valid := []types.GCAttachment{{ContainerID: kept.rt.ContainerID, IfName: "eth0"}}
			must(t, n.cni.GCNetworkList(t.Context(), n.list, &libcni.GCArgs{ValidAttachments: valid}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			rt, _ := sandbox(t, "a")
			_, err := n.add(rt)
			must(t, err)
			if n.bound() != 2*each {
				t.Errorf("bound: %d", n.bound())
			}
			end(rt)
			if n.bound() != each {
				t.Errorf("bound after the end: %d", n.bound())
			}
		})
	}
	must(t, os.WriteFile(filepath.Join(n.dir, "refuse"), []byte("portmap ADD"), 0o600))
	rt, _ := sandbox(t, "b")
	rt.CapabilityArgs = map[string]any{"portMappings": []any{map[string]any{"hostPort": 80, "containerPort": 80}}}
	if _, err := n.add(rt); err == nil || n.bound() != each {
		t.Errorf("refused: %v; bound: %d", err, n.bound())
	}
}

// TestRestored checks that Restore corrects the table after it was flushed, was changed or was
// never created.
func TestRestored(t *testing.T) {
	w := newBridgeLab(t)
	conf := Config{Name: "net", Bridge: "br0", DataDir: w.dir,
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::/64")}}
	spoofed := ether(w.alice.mac, w.mallory.mac, 0x0800, ip4(w.bob.v4, w.alice.v4, 17, udp(7, 7, []byte("attack"))))
	if changed, err := Restore(conf); changed || err != nil {
		t.Errorf("nothing to restore: %v %v", changed, err)
	}
	for name, damage := range map[string]func(*ports.Table) error{
		"no table": (*ports.Table).Remove,
		"no binding": func(p *ports.Table) error {
			return p.Unbind(conf.bindingOf(types.GCAttachment{ContainerID: "mallory", IfName: "eth0"},
				[]netip.Addr{w.mallory.v4, w.mallory.v6}))
		},
		"additional binding": func(p *ports.Table) error {
			return p.Bind(ports.Binding{
				Port: hostEnd(types.GCAttachment{ContainerID: "mallory", IfName: "eth0"}), MAC: w.mallory.mac,
				Addresses: []netip.Addr{w.bob.v4}})
		},
	} {
		table, err := ports.Open(0)
		must(t, err)
		must(t, errors.Join(damage(table), table.Close()))
		if !w.arrives(1, spoofed, spoofed[14:]) {
			t.Errorf("%s: the attack does not work without the binding", name)
		}
		if changed, err := Restore(conf); !changed || err != nil {
			t.Errorf("%s: restored %v %v", name, changed, err)
		}
		if w.arrives(2, spoofed, spoofed[14:]) || w.bound() != 12 {
			t.Errorf("%s: not restored; bound: %d", name, w.bound())
		}
	}
	// If the table does not exist, attaching a sandbox restores it too.
	table, err := ports.Open(0)
	must(t, err)
	must(t, errors.Join(table.Remove(), table.Close()))
	w.attachSandbox("late", 5)
	if w.arrives(3, spoofed, spoofed[14:]) || w.bound() != 16 {
		t.Errorf("not restored by the plugin; bound: %d", w.bound())
	}
}
