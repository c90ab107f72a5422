// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/pkg/proxy/service"
)

// TestNodePortRanges checks which local addresses have node ports.
func TestNodePortRanges(t *testing.T) {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for name, c := range map[string]struct {
		ranges  []string
		primary bool
		ips     []netip.Addr
		v4, v6  []string
		limited [2]bool // IPv4 and IPv6
	}{
		"by default":      {},
		"one family":      {ranges: []string{"10.0.0.0/8"}, v4: []string{"10.0.0.0/8"}, limited: [2]bool{true, false}},
		"all and a range": {ranges: []string{"10.0.0.0/8", "0.0.0.0/0", "::/0"}, primary: true},
		"primary": {primary: true, ips: addrs("192.0.2.1", "192.0.2.2"), v4: []string{"192.0.2.1/32"},
			limited: [2]bool{true, true}},
		"primary unknown": {primary: true, limited: [2]bool{true, true}},
		"primary loopback": {primary: true, ips: addrs("127.0.0.1", "fd00::1"), v6: []string{"fd00::1/128"},
			limited: [2]bool{true, true}},
		"primary and a range": {ranges: []string{"10.0.0.0/8"}, primary: true, ips: addrs("192.0.2.1"),
			v4: []string{"10.0.0.0/8", "192.0.2.1/32"}, limited: [2]bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Proxy{cfg: Config{NodePorts: prefixes(c.ranges), NodePortsPrimary: c.primary}, node: service.Node{IPs: c.ips}}
			for i, want := range [][]string{c.v4, c.v6} {
				got, limited := p.nodePorts([]ruleset.Family{ruleset.IPv4, ruleset.IPv6}[i])
				if !slices.Equal(got, prefixes(want)) || limited != c.limited[i] {
					t.Errorf("ranges %v, limited %v; want %v, %v", got, limited, want, c.limited[i])
				}
			}
		})
	}
}

// TestDeletedNode checks that the proxy keeps the zone, addresses and pod ranges of a deleted Node.
func TestDeletedNode(t *testing.T) {
	for name, zone := range map[string]string{"with a zone": "z", "without a zone": ""} {
		t.Run(name, func(t *testing.T) {
			p := &Proxy{cfg: Config{Node: "n", PodsOfNode: true}}
			p.setNode(nil)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			if zone != "" {
				node.Labels = map[string]string{corev1.LabelTopologyZone: zone}
			}
			node.Spec.PodCIDRs = []string{"10.244.1.0/24"}
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
			if !p.setNode(node) {
				t.Error("a new Node changes nothing")
			}
			if p.setNode(nil) {
				t.Error("the deletion of the Node changes the services")
			}
			if p.node.Zone != zone || !slices.Equal(p.node.IPs, nodeIPs(node)) ||
				!slices.Equal(p.ranges.Pods, prefixes(node.Spec.PodCIDRs)) {
				t.Errorf("after the deletion: %+v, pods %v", p.node, p.ranges.Pods)
			}
			node.Status.Addresses[0].Address = "192.0.2.2"
			if !p.setNode(node) || !slices.Equal(p.node.IPs, nodeIPs(node)) {
				t.Errorf("after the Node was created again: %+v", p.node)
			}
		})
	}
}
