// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaims

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func drawClaim(t *rapid.T) Claim {
	c := Claim{
		Name:    fmt.Sprintf("n%d", rapid.IntRange(0, 20).Draw(t, "name")),
		UID:     types.UID(rapid.StringN(1, 4, 4).Draw(t, "uid")),
		Created: time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "created")), 0),
	}
	address := func(what string) netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 1).Draw(t, what+" net")),
			byte(rapid.IntRange(0, 3).Draw(t, what)), byte(rapid.IntRange(0, 3).Draw(t, what+" host"))})
	}
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		c.PodRanges = append(c.PodRanges, netip.PrefixFrom(address("range"), rapid.IntRange(0, 32).Draw(t, "bits")).Masked())
	}
	for range rapid.IntRange(0, 3).Draw(t, "addresses") {
		c.Addresses = append(c.Addresses, address("address"))
	}
	return c
}

// TestSettleProperties checks Settle for random claims: no range or address has two owners, what an
// older node owns does not depend on younger nodes, and the order of the list does not matter.
func TestSettleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claims := rapid.SliceOfNDistinct(rapid.Custom(drawClaim), 0, 8,
			func(c Claim) string { return c.Name }).Draw(t, "claims")
		within := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
		settled, refused := Settle(claims, within)
		again, _ := Settle(rapid.Permutation(claims).Draw(t, "order"), within)
		if !reflect.DeepEqual(settled, again) {
			t.Fatalf("the result depends on the order: %v, %v", settled, again)
		}
		var owned []netip.Prefix
		for i, c := range settled {
			if i > 0 && Older(settled[i-1], c) > 0 {
				t.Fatalf("%v before %v", settled[i-1], c)
			}
			own := c.PodRanges
			for _, p := range own {
				if p.Bits() < 16 || !within[0].Contains(p.Addr()) {
					t.Fatalf("%s is outside", p)
				}
			}
			for _, a := range c.Addresses {
				own = append(own, netip.PrefixFrom(a, 32))
			}
			for _, p := range own {
				for _, q := range owned {
					if p.Overlaps(q) {
						t.Fatalf("%s and %s overlap, but each has an owner", p, q)
					}
				}
				owned = append(owned, p)
			}
		}
		if len(settled) > 0 {
			first, _ := Settle(settled[:1], within)
			if len(first) != 1 || !reflect.DeepEqual(first[0].PodRanges, settled[0].PodRanges) {
				t.Fatalf("the oldest node alone owns %v, but with other nodes %v", first, settled[0])
			}
		}
		for _, r := range refused {
			if r.Cause == "" || r.Node == "" {
				t.Fatalf("refusal %v", r)
			}
		}
	})
}

func TestOutside(t *testing.T) {
	for _, text := range []string{"0.0.0.0/0", "127.0.0.0/24", "169.254.0.0/16", "10.50.0.1/32",
		"10.244.0.0/15", "::ffff:10.244.0.0/120", "::/0"} {
		if outside(netip.MustParsePrefix(text), []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}) == "" {
			t.Errorf("%s is inside", text)
		}
	}
	for _, text := range []string{"10.244.0.0/16", "10.244.7.0/24", "10.244.7.9/32"} {
		if why := outside(netip.MustParsePrefix(text), []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}); why != "" {
			t.Errorf("%s: %s", text, why)
		}
	}
}

func TestReserved(t *testing.T) {
	r := Reserved{Names: []string{"api.example.com"}, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	for name, free := range map[string]bool{
		"n1": true, "ip-10-0-0-1.ec2.internal": true, "kubernetes-node": true, "svc1": true, "10.50.0.11": true,
		"localhost": false, "LOCALHOST.": false, "a.localhost": false, "localhost.localdomain": false,
		"kubernetes": false, "kubernetes.default": false, "kubernetes.default.svc": false,
		"a.b.svc.cluster.local": false, "webhook.ns.svc": false,
		"api.example.com": false, "API.example.com.": false, "127.0.0.1": false, "10.96.0.1": false,
		"::1": false, "169.254.169.254": false,
	} {
		if why := r.Name(name); (why == "") != free {
			t.Errorf("%s: %q", name, why)
		}
	}
	for address, free := range map[string]bool{
		"10.50.0.11": true, "fd50::11": true,
		"127.0.0.1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "224.0.0.1": false,
		"fe80::1%eth0": false, "10.96.255.255": false, "::ffff:10.96.0.1": false, "64:ff9b::7f00:1": false,
	} {
		if why := r.Address(netip.MustParseAddr(address)); (why == "") != free {
			t.Errorf("%s: %q", address, why)
		}
	}
}
