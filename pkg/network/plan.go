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

// The name of the VXLAN device, its network identifier, and the port that IANA has assigned to
// VXLAN.
const (
	vxlanName = "vxlan.keelson"
	vxlanID   = 1
	vxlanPort = 4789
)

// How many bytes VXLAN adds to a packet: the inner Ethernet, the VXLAN, UDP and outer IP headers.
const (
	overheadIPv4 = 50
	overheadIPv6 = 70
)

// defaultMTU is the MTU of the pods' interfaces in bytes if no link determines it.
const defaultMTU = 1500

// node contains the properties of a Node object on which the network depends.
type node struct {
	name      string
	podCIDRs  []netip.Prefix
	addresses []netip.Addr // internal addresses, the primary one first
	uid       types.UID
	created   time.Time
}

// link contains the properties of one of this node's links.
type link struct {
	name     string
	mtu      int
	prefixes []netip.Prefix // addresses with the prefix lengths of their networks
}

// route leads to the pods of another node. Without a link it drops packets.
type route struct {
	dst    netip.Prefix
	via    netip.Addr
	link   string
	onLink bool // send to via on the link, although no route says that via is there
}

// neighbour maps the inner IP address of another node's VXLAN device to the device's hardware
// address.
type neighbour struct {
	ip  netip.Addr
	mac string
}

// forward maps the hardware address of a node's VXLAN device to the node's outer IP address.
type forward struct {
	mac string
	dst netip.Addr
}

// vxlan is the wanted VXLAN device of this node.
type vxlan struct {
	local     netip.Addr     // outer address: the source of the VXLAN packets
	addresses []netip.Prefix // inner addresses of the VXLAN device
	mac       string
	mtu       int
}

// wanted is the state that the kernel and the configuration must have.
type wanted struct {
	podCIDRs   []netip.Prefix // pod ranges of this node
	mtu        int            // MTU of the pods' interfaces
	vxlan      *vxlan         // nil if no device is wanted
	routes     []route
	neighbours []neighbour
	forwards   []forward
	masquerade masquerade
	guard      guard
	// unreachable are the names of nodes that have a pod range to which no route exists.
	unreachable []string
	// refused has a text for each pod range or address that a Node reports but may not use, for
	// example because an older node owns it. No routes use these ranges and addresses.
	refused []string
}

// plan computes how this node reaches the pods of other nodes. It ignores nodes without pod ranges,
// and ranges and addresses that an older node owns. It checks the ownership because nodes write their
// ranges and addresses themselves (package nodeclaims). The last argument has the cluster's pod
// ranges; unless it is empty, plan also ignores ranges outside of these.
func plan(self string, nodes []node, links []link, within []netip.Prefix) wanted {
	said := slices.IndexFunc(nodes, func(n node) bool { return n.name == self })
	if said < 0 {
		return wanted{}
	}
	// settle drops a node's addresses that an older node owns. For this node, use all addresses in
	// its object, because its links show which of them it really has.
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

// settle returns the nodes sorted by name, each with only the pod ranges and addresses that it may
// use. It also returns a text for each other range and address.
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
	// macs maps each hardware address to the name of the node that owns it. Hardware addresses are
	// derived from node names, so an attacker can choose a name whose address equals that of another
	// node.
	macs     map[string]string
	underlay link       // the link that carries VXLAN packets
	local    netip.Addr // this node's address on underlay; invalid if there is none
	out      wanted
}

// findUnderlay returns the link that carries VXLAN packets, and its address: the first of this
// node's addresses that a link has.
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

// reach adds the routes to the pods of one other node.
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

// sameLink returns an address of the peer that is in the network of one of this node's links, and
// the name of that link.
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

// outer returns the address to which VXLAN packets for the peer are sent. It is of the same IP
// family as this node's own address for VXLAN.
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

// finish adds the VXLAN device if a route uses it. It also adds a route without a link for this
// node's own pod ranges, which drops packets while the bridge does not exist. Otherwise two nodes
// could send such packets back and forth.
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

// hardwareAddress returns the hardware address of a node's VXLAN device, which is a locally
// administered unicast address.
func hardwareAddress(nodeName string) string {
	sum := sha256.Sum256([]byte(nodeName))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac.String()
}
