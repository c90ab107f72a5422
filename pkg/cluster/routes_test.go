// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/nodeclaims"
)

func routedNode(name, podRange, address string, age int64) nodeclaims.Claim {
	n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000-age, 0))}}
	n.Spec.PodCIDRs = []string{podRange}
	n.Status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: address}}
	return nodeclaims.Of(n)
}

func claimsOf(nodes ...nodeclaims.Claim) map[types.NamespacedName]*nodeclaims.Claim {
	out := map[types.NamespacedName]*nodeclaims.Claim{}
	for i := range nodes {
		out[types.NamespacedName{Name: nodes[i].Name}] = &nodes[i]
	}
	return out
}

// TestPodRoutes checks that a node which reports a pod range or address of another node gets no
// route, and that its removal does not remove the other node's route.
func TestPodRoutes(t *testing.T) {
	kernel := map[string]string{}
	routes := &podRoutes{
		cfg: &Config{}, set: map[string]netip.Addr{},
		replace: func(r *netlink.Route) error { kernel[r.Dst.String()] = r.Gw.String(); return nil },
		remove:  func(r *netlink.Route) error { delete(kernel, r.Dst.String()); return nil },
	}
	n1, n2 := routedNode("n1", "10.244.0.0/24", "10.50.0.11", 9), routedNode("n2", "10.244.1.0/24", "10.50.0.12", 8)
	good := map[string]string{"10.244.0.0/24": "10.50.0.11", "10.244.1.0/24": "10.50.0.12"}
	for name, liar := range map[string]nodeclaims.Claim{
		"another node's range":           routedNode("a", "10.244.0.0/24", "10.50.0.13", 1),
		"a part of it":                   routedNode("a", "10.244.0.128/25", "10.50.0.13", 1),
		"the API server's address":       routedNode("a", "10.50.0.1/32", "10.50.0.13", 1),
		"everything":                     routedNode("a", "0.0.0.0/0", "10.50.0.13", 1),
		"services":                       routedNode("a", "10.96.0.0/16", "10.50.0.13", 1),
		"the control plane as a gateway": routedNode("a", "10.244.9.0/24", "10.50.0.1", 1),
		"loopback as a gateway":          routedNode("a", "10.244.9.0/24", "127.0.0.1", 1),
		"another node as a gateway":      routedNode("a", "10.244.9.0/24", "10.50.0.12", 1),
	} {
		for step, nodes := range map[string][]nodeclaims.Claim{"with it": {liar, n1, n2}, "without it": {n1, n2}} {
			if err := routes.sync(claimsOf(nodes...)); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(kernel, good) {
				t.Errorf("%s, %s: routes %v", name, step, kernel)
			}
		}
	}
	if err := routes.sync(claimsOf(n2)); err != nil || len(kernel) != 1 {
		t.Errorf("without n1: routes %v, %v", kernel, err)
	}
}
