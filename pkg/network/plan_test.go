// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, x := range s {
		out = append(out, netip.MustParsePrefix(x))
	}
	return out
}

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, x := range s {
		out = append(out, netip.MustParseAddr(x))
	}
	return out
}

// newNode returns a node. All nodes of these tests have the same age, so that the node whose name
// sorts first counts as the oldest.
func newNode(name string, ranges []netip.Prefix, addresses []netip.Addr) node {
	return node{name: name, podCIDRs: ranges, addresses: addresses}
}

func TestPlan(t *testing.T) {
	eth0 := link{name: "eth0", mtu: 1500, prefixes: prefixes("10.50.0.11/24")}
	eth6 := link{name: "eth0", mtu: 1500, prefixes: prefixes("10.50.0.11/24", "fd50::11/64")}
	n1 := newNode("n1", prefixes("10.244.0.0/24"), addrs("10.50.0.11"))
	n2 := newNode("n2", prefixes("10.244.1.0/24"), addrs("10.50.0.12"))
	far := newNode("far", prefixes("10.244.2.0/24"), addrs("10.60.0.5"))
	nowhere := route{dst: netip.MustParsePrefix("10.244.0.0/24")}
	toN2 := route{dst: netip.MustParsePrefix("10.244.1.0/24"), via: netip.MustParseAddr("10.50.0.12"), link: "eth0"}
	toFar := route{dst: netip.MustParsePrefix("10.244.2.0/24"), via: netip.MustParseAddr("10.244.2.0"),
		link: vxlanName, onLink: true}

	for name, c := range map[string]struct {
		nodes []node
		links []link
		want  wanted
	}{
		"unknown":   {[]node{n2}, []link{eth0}, wanted{}},
		"no range":  {[]node{{name: "n1", addresses: n1.addresses}}, []link{eth0}, wanted{mtu: 1500}},
		"alone":     {[]node{n1}, []link{eth0}, wanted{podCIDRs: n1.podCIDRs, mtu: 1500, routes: []route{nowhere}}},
		"same link": {[]node{n2, n1}, []link{eth0}, wanted{podCIDRs: n1.podCIDRs, mtu: 1500, routes: []route{toN2, nowhere}}},
		"other link": {[]node{n1, n2, far}, []link{eth0}, wanted{
			podCIDRs: n1.podCIDRs, mtu: 1450,
			vxlan: &vxlan{local: netip.MustParseAddr("10.50.0.11"), addresses: prefixes("10.244.0.0/32"),
				mac: hardwareAddress("n1"), mtu: 1450},
			routes:     []route{toFar, toN2, nowhere},
			neighbours: []neighbour{{netip.MustParseAddr("10.244.2.0"), hardwareAddress("far")}},
			forwards:   []forward{{hardwareAddress("far"), netip.MustParseAddr("10.60.0.5")}},
		}},
		"no links": {[]node{n1, n2}, nil,
			wanted{podCIDRs: n1.podCIDRs, mtu: defaultMTU, routes: []route{nowhere}, unreachable: []string{"n2"}}},
		"not ready": {[]node{n1, {name: "n2", addresses: n2.addresses}}, []link{eth0},
			wanted{podCIDRs: n1.podCIDRs, mtu: 1500, routes: []route{nowhere}}},
		"same range": {[]node{n1, n2, newNode("n3", n2.podCIDRs, addrs("10.50.0.13"))}, []link{eth0},
			wanted{podCIDRs: n1.podCIDRs, mtu: 1500, routes: []route{toN2, nowhere}}},
		"my range": {[]node{n1, newNode("n2", n1.podCIDRs, n2.addresses)}, []link{eth0},
			wanted{podCIDRs: n1.podCIDRs, mtu: 1500, routes: []route{nowhere}}},
		"dual stack, IPv6 not on link": {
			[]node{newNode("n1", prefixes("10.244.0.0/24", "fd00:0:0:0::/64"), n1.addresses),
				newNode("n2", prefixes("10.244.1.0/24", "fd00:0:0:1::/64"), n2.addresses)},
			[]link{eth0},
			wanted{
				podCIDRs: prefixes("10.244.0.0/24", "fd00::/64"), mtu: 1450,
				vxlan: &vxlan{local: netip.MustParseAddr("10.50.0.11"),
					addresses: prefixes("10.244.0.0/32", "fd00::/128"), mac: hardwareAddress("n1"), mtu: 1450},
				routes: []route{
					toN2,
					{dst: netip.MustParsePrefix("fd00:0:0:1::/64"), via: netip.MustParseAddr("fd00:0:0:1::"),
						link: vxlanName, onLink: true},
					nowhere, {dst: netip.MustParsePrefix("fd00::/64")},
				},
				neighbours: []neighbour{{netip.MustParseAddr("fd00:0:0:1::"), hardwareAddress("n2")}},
				forwards:   []forward{{hardwareAddress("n2"), netip.MustParseAddr("10.50.0.12")}},
			},
		},
		"dual stack": {
			[]node{newNode("n1", prefixes("fd00::/64"), addrs("10.50.0.11", "fd50::11")),
				newNode("n2", prefixes("fd00:0:0:1::/64"), addrs("10.50.0.12", "fd50::12"))},
			[]link{eth6},
			wanted{podCIDRs: prefixes("fd00::/64"), mtu: 1500, routes: []route{
				{dst: netip.MustParsePrefix("fd00:0:0:1::/64"), via: netip.MustParseAddr("fd50::12"), link: "eth0"},
				{dst: netip.MustParsePrefix("fd00::/64")},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan("n1", c.nodes, c.links, nil)
			// Other tests check these parts.
			got.masquerade, got.guard, got.refused = masquerade{}, guard{}, nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got\n%+v %+v\nwant\n%+v %+v", got, got.vxlan, c.want, c.want.vxlan)
			}
		})
	}
}

// TestPlanProperties checks the properties that the plan of every node in every cluster must have.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.Custom(drawNode), 0, 8, func(n node) string { return n.name }).Draw(t, "nodes")
		links := []link{
			{"eth0", 1500, prefixes("10.50.0.1/24")},
			{"eth1", 9000, prefixes("10.51.0.1/24")},
		}
		self := "n0"
		w := plan(self, nodes, links, nil)
		if again := plan(self, rapid.Permutation(nodes).Draw(t, "order"), links, nil); !reflect.DeepEqual(w, again) {
			t.Fatalf("depends on the order: %+v, %+v", w, again)
		}
		tunnels := map[netip.Addr]bool{}
		for _, n := range w.neighbours {
			tunnels[n.ip] = true
			if !slices.ContainsFunc(w.forwards, func(f forward) bool { return f.mac == n.mac }) {
				t.Fatalf("neighbour %v has no forwarding entry", n)
			}
		}
		for i, r := range w.routes {
			for _, other := range w.routes[:i] {
				if r.dst.Overlaps(other.dst) {
					t.Fatalf("two ways: %v and %v", r, other)
				}
			}
			switch {
			case r.link == "" && !slices.Contains(w.podCIDRs, r.dst):
				t.Fatalf("route to nowhere for another node's pods: %v", r)
			case r.link == vxlanName && !tunnels[r.via]:
				t.Fatalf("no neighbour for %v", r)
			case r.link == vxlanName && w.vxlan == nil:
				t.Fatalf("no device for %v", r)
			case r.link != "" && r.link != vxlanName:
				l := links[slices.IndexFunc(links, func(l link) bool { return l.name == r.link })]
				if !l.prefixes[0].Contains(r.via) || l.prefixes[0].Addr() == r.via {
					t.Fatalf("%v is not a neighbour", r)
				}
			}
		}
		if (w.vxlan != nil) != (len(w.forwards) > 0) {
			t.Fatalf("device %v, entries %v", w.vxlan, w.forwards)
		}
	})
}

// TestPlanRefuses checks that a node that claims a range or address of another node gets no packets
// for that node. It tries several names, and the plans of all nodes.
func TestPlanRefuses(t *testing.T) {
	created := time.Unix(1000, 0)
	eth0 := link{name: "eth0", mtu: 1500, prefixes: prefixes("10.50.0.11/24")}
	n1, n2 := newNode("n1", prefixes("10.244.0.0/24"), addrs("10.50.0.11")),
		newNode("n2", prefixes("10.244.1.0/24"), addrs("10.50.0.12"))
	n1.created, n2.created = created, created
	for name, liar := range map[string]node{
		"another node's range":     newNode("a", prefixes("10.244.1.0/24"), addrs("10.50.0.13")),
		"a part of it":             newNode("a", prefixes("10.244.1.128/25"), addrs("10.50.0.13")),
		"every pod's range":        newNode("a", prefixes("10.244.0.0/16"), addrs("10.50.0.13")),
		"my range":                 newNode("a", prefixes("10.244.0.0/24"), addrs("10.50.0.13")),
		"the API server's address": newNode("a", prefixes("10.50.0.1/32"), addrs("10.50.0.13")),
		"another node's address":   newNode("a", prefixes("10.50.0.12/32"), addrs("10.50.0.13")),
		"everything":               newNode("a", prefixes("0.0.0.0/0"), addrs("10.50.0.13")),
		"the address of a node":    newNode("a", prefixes("10.244.7.0/24"), addrs("10.50.0.12")),
		"loopback":                 newNode("a", prefixes("127.0.0.0/24"), addrs("127.0.0.1")),
	} {
		t.Run(name, func(t *testing.T) {
			liar.created = created.Add(time.Second)
			got := plan("n1", []node{liar, n1, n2}, []link{eth0}, prefixes("10.244.0.0/16"))
			for _, r := range got.routes {
				if r.via == addrs("10.50.0.13")[0] || r.dst == prefixes("10.244.7.0/24")[0] {
					t.Errorf("route %v", r)
				}
			}
			if len(got.routes) != 2 || len(got.refused) == 0 {
				t.Errorf("routes %v, refused %q", got.routes, got.refused)
			}
			if own := plan("a", []node{liar, n1, n2}, []link{eth0}, prefixes("10.244.0.0/16")); len(
				own.podCIDRs) > 0 && name != "the address of a node" {
				t.Errorf("its own pods have %v", own.podCIDRs)
			}
		})
	}
}

func drawNode(t *rapid.T) node {
	n := node{name: fmt.Sprintf("n%d", rapid.IntRange(0, 9).Draw(t, "name"))}
	for range rapid.IntRange(0, 2).Draw(t, "ranges") {
		n.podCIDRs = append(n.podCIDRs,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(rapid.IntRange(0, 9).Draw(t, "range")), 0}), 24))
	}
	n.podCIDRs = slices.CompactFunc(n.podCIDRs, netip.Prefix.Overlaps)
	for range rapid.IntRange(0, 2).Draw(t, "addresses") {
		n.addresses = append(n.addresses,
			netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(50, 52).Draw(t, "net")), 0,
				byte(rapid.IntRange(1, 9).Draw(t, "host"))}))
	}
	return n
}

func TestHardwareAddress(t *testing.T) {
	seen := map[string]string{}
	for i := range 5000 {
		name := fmt.Sprintf("node-%d", i)
		mac := hardwareAddress(name)
		if other, ok := seen[mac]; ok {
			t.Fatalf("%s and %s share %s", name, other, mac)
		}
		seen[mac] = name
		if c := mac[1]; c != '2' && c != '6' && c != 'a' && c != 'e' {
			t.Fatalf("%s: %s is not a locally administered unicast address", name, mac)
		}
	}
}

func TestPlanMasquerade(t *testing.T) {
	got := planMasquerade(prefixes("10.244.0.0/24"), []node{
		newNode("n1", prefixes("10.244.0.0/24"), addrs("10.50.0.11")),
		// The address of this node is inside of a pod range.
		newNode("n2", prefixes("10.244.1.0/24", "fd00::/64"), addrs("10.244.0.9", "fd50::12")),
	})
	want := masquerade{
		from: prefixes("10.244.0.0/24"),
		except: prefixes("10.50.0.11/32", "10.244.0.0/24", "10.244.1.0/24", "224.0.0.0/4", "fd00::/64",
			"fd50::12/128", "ff00::/8"),
	}
	if !got.equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
