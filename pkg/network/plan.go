// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/nodeclaims"
)

// The VXLAN device's name, its network identifier, and the port that IANA assigned to the
// protocol.
const (
	vxlanName = "vxlan.keelson"
	vxlanID   = 1
	vxlanPort = 4789
)

// The number of bytes that VXLAN adds to a packet: inner Ethernet, VXLAN, UDP and outer IP headers.
const (
	overheadIPv4 = 50
	overheadIPv6 = 70
)

// defaultMTU is the MTU of pods' interfaces if no link determines it.
const defaultMTU = 1500

// node holds the properties of a Node that the network depends on.
type node struct {
	name      string
	podCIDRs  []netip.Prefix
	addresses []netip.Addr // internal addresses, beginning with the primary one
	uid       types.UID
	created   time.Time
}

// link holds the properties of one of this node's links.
type link struct {
	name     string
	mtu      int
	prefixes []netip.Prefix // the addresses of the link, with the lengths of their networks
}

// route leads to another node's pods, or, if it has no link, drops packets.
type route struct {
	dst    netip.Prefix
	via    netip.Addr
	link   string
	onLink bool // treat via as a neighbour on the link, although no route says so
}

// neighbour maps the inner address of another node's VXLAN device to its hardware address.
type neighbour struct {
	ip  netip.Addr
	mac string
}

// forward maps a hardware address to the outer address of its node.
type forward struct {
	mac string
	dst netip.Addr
}

// vxlan is this node's device.
type vxlan struct {
	local     netip.Addr     // outer address: source of the VXLAN packets
	addresses []netip.Prefix // inner addresses of the device
	mac       string
	mtu       int
}

// wanted is the state that the kernel should have.
type wanted struct {
	podCIDRs   []netip.Prefix // the pod CIDRs of this node
	mtu        int            // MTU of pods' interfaces
	vxlan      *vxlan         // nil if no device is wanted
	routes     []route
	neighbours []neighbour
	forwards   []forward
	masquerade masquerade
	guard      guard
	// unreachable are the names of nodes without a route.
	unreachable []string
	// refused are claims of nodes to ranges and addresses that they do not own. These ranges and
	// addresses get no routes.
	refused []string
}

// plan decides how this node reaches the pods of other nodes. Nodes without pod ranges are left
// out. Ranges outside the cluster's ranges, and ranges and addresses that an older node owns, are
// left out too. This check is needed because nodes write their ranges and addresses themselves
// (package nodeclaims). within may be empty.
func plan(self string, nodes []node, links []link, within []netip.Prefix) wanted {
	said := slices.IndexFunc(nodes, func(n node) bool { return n.name == self })
	if said < 0 {
		return wanted{}
	}
	// All addresses that the node reports, because its links show which of them it has.
	addresses := nodes[said].addresses
	nodes, refused := settle(nodes, within)
	i := slices.IndexFunc(nodes, func(n node) bool { return n.name == self })
	nodes[i].addresses = addresses
	p := planner{own: nodes[i], links: links, out: wanted{podCIDRs: nodes[i].podCIDRs, refused: refused}}
	p.macs = map[string]string{}
	for _, n := range slices.SortedFunc(slices.Values(nodes),
		func(a, b node) int { return nodeclaims.Older(a.claim(), b.claim()) }) {
		if mac := hardwareAddress(n.name); p.macs[mac] == "" {
			p.macs[mac] = n.name
		}
	}
	p.underlay, p.local = p.findUnderlay()
	for _, peer := range nodes {
		if peer.name != self {
			p.reach(peer)
		}
	}
	p.finish()
	p.out.masquerade = planMasquerade(p.own.podCIDRs, nodes)
	p.out.guard = planGuard(self, p.own.podCIDRs, nodes, p.out.vxlan != nil)
	return p.out
}

func (n *node) claim() nodeclaims.Claim {
	return nodeclaims.Claim{Name: n.name, UID: n.uid, Created: n.created, PodRanges: n.podCIDRs, Addresses: n.addresses}
}

// settle returns the nodes sorted by name, each with the claims that it owns, and the refused claims.
func settle(nodes []node, within []netip.Prefix) ([]node, []string) {
	claims := make([]nodeclaims.Claim, len(nodes))
	for i, n := range nodes {
		claims[i] = n.claim()
	}
	claims, refused := nodeclaims.Settle(claims, within)
	out := make([]node, len(claims))
	for i, c := range claims {
		out[i] = node{name: c.Name, podCIDRs: c.PodRanges, addresses: c.Addresses, uid: c.UID, created: c.Created}
	}
	slices.SortFunc(out, func(a, b node) int { return strings.Compare(a.name, b.name) })
	var texts []string
	for _, r := range refused {
		texts = append(texts, r.String())
	}
	return out, texts
}

type planner struct {
	own   node
	links []link
	// macs maps each hardware address to the node that owns it. Hardware addresses are derived from node
	// names, so an attacker can choose a name that collides with another node's.
	macs     map[string]string
	underlay link       // the link that carries VXLAN packets
	local    netip.Addr // this node's address on the link; invalid if there is none
	out      wanted
}

// findUnderlay returns the link with the first of this node's addresses that any link has.
func (p *planner) findUnderlay() (link, netip.Addr) {
	for _, a := range p.own.addresses {
		for _, l := range p.links {
			if slices.ContainsFunc(l.prefixes, func(x netip.Prefix) bool { return x.Addr() == a }) {
				return l, a
			}
		}
	}
	return link{}, netip.Addr{}
}

// reach adds the routes to one node's pods.
func (p *planner) reach(peer node) {
	outer, tunnel := p.outer(peer)
	tunnel = tunnel && p.macs[hardwareAddress(peer.name)] == peer.name
	tunnelled, lost := false, false
	for _, dst := range peer.podCIDRs {
		if via, on, ok := p.sameLink(peer, dst.Addr().Is4()); ok {
			p.out.routes = append(p.out.routes, route{dst: dst, via: via, link: on})
			continue
		}
		if !tunnel {
			lost = true
			continue
		}
		inner := dst.Masked().Addr()
		p.out.routes = append(p.out.routes, route{dst: dst, via: inner, link: vxlanName, onLink: true})
		p.out.neighbours = append(p.out.neighbours, neighbour{ip: inner, mac: hardwareAddress(peer.name)})
		tunnelled = true
	}
	if tunnelled {
		p.out.forwards = append(p.out.forwards, forward{mac: hardwareAddress(peer.name), dst: outer})
	}
	if lost {
		p.out.unreachable = append(p.out.unreachable, peer.name)
	}
}

// sameLink returns an address of the peer that is in a network of one of this node's links, and the
// name of this link.
func (p *planner) sameLink(peer node, ipv4 bool) (via netip.Addr, on string, ok bool) {
	for _, a := range peer.addresses {
		if a.Is4() != ipv4 {
			continue
		}
		for _, l := range p.links {
			for _, x := range l.prefixes {
				if x.Addr() != a && x.Contains(a) {
					return a, l.name, true
				}
			}
		}
	}
	return netip.Addr{}, "", false
}

// outer returns the peer's address for VXLAN packets. It has the same family as this node's own
// address for VXLAN packets.
func (p *planner) outer(peer node) (netip.Addr, bool) {
	if !p.local.IsValid() {
		return netip.Addr{}, false
	}
	i := slices.IndexFunc(peer.addresses, func(a netip.Addr) bool { return a.Is4() == p.local.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return peer.addresses[i], true
}

// finish adds the device if any route uses it. It also adds a route without a link for this node's
// own pods. While there is no bridge, that route drops packets to pods. Otherwise nodes could send
// them back and forth.
func (p *planner) finish() {
	for _, own := range p.own.podCIDRs {
		p.out.routes = append(p.out.routes, route{dst: own})
	}
	p.out.mtu = p.underlay.mtu
	if p.out.mtu == 0 {
		p.out.mtu = defaultMTU
	}
	if len(p.out.forwards) == 0 {
		return
	}
	p.out.mtu -= overheadIPv4
	if p.local.Is6() {
		p.out.mtu -= overheadIPv6 - overheadIPv4
	}
	p.out.vxlan = &vxlan{local: p.local, mac: hardwareAddress(p.own.name), mtu: p.out.mtu}
	for _, own := range p.own.podCIDRs {
		inner := own.Masked().Addr()
		p.out.vxlan.addresses = append(p.out.vxlan.addresses, netip.PrefixFrom(inner, inner.BitLen()))
	}
}

// hardwareAddress returns the locally administered unicast address of a node's VXLAN device.
func hardwareAddress(nodeName string) string {
	sum := sha256.Sum256([]byte(nodeName))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac.String()
}
