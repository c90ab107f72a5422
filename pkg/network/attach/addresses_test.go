// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// unbound is the unbind function of tests that do not bind ports.
func unbound(types.GCAttachment, []netip.Addr) error { return nil }

func owner(id string) types.GCAttachment {
	return types.GCAttachment{ContainerID: id, IfName: "eth0"}
}

func subnets(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// naive is a simple model: it allocates the addresses of a small range in order, and continues at
// the start after the end.
type naive struct {
	order []netip.Addr // all addresses of the range
	given map[netip.Addr]types.GCAttachment
	at    int // index in order of the address to try next
}

func (n *naive) give(to types.GCAttachment) (netip.Addr, bool) {
	for i := range n.order {
		at := (n.at + i) % len(n.order)
		if _, taken := n.given[n.order[at]]; !taken {
			n.given[n.order[at]], n.at = to, at+1
			return n.order[at], true
		}
	}
	return netip.Addr{}, false
}

// TestAddresses allocates, frees and collects addresses at random, and compares each step with
// naive.
func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct{ subnet, first, last string }{
		"four":        {"10.0.0.0/30", "10.0.0.2", "10.0.0.2"},
		"sixteen":     {"10.0.0.16/28", "10.0.0.18", "10.0.0.30"},
		"over a byte": {"10.0.252.0/22", "10.0.252.2", "10.0.255.254"},
		"IPv6":        {"fd00::/124", "fd00::2", "fd00::f"},
		"IPv6's end": {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff2", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"IPv4's end":   {"255.255.255.248/29", "255.255.255.250", "255.255.255.254"},
		"the smallest": {"0.0.0.0/29", "0.0.0.2", "0.0.0.6"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			a := addresses{dir: t.TempDir()}
			n := &naive{given: map[netip.Addr]types.GCAttachment{}}
			for at, end := netip.MustParseAddr(c.first), netip.MustParseAddr(c.last); ; at = at.Next() {
				n.order = append(n.order, at)
				if at == end {
					break
				}
			}
			for step := range 300 {
				who := owner(fmt.Sprint(r.IntN(1 + len(n.order)/2)))
				switch r.IntN(8) {
				case 0:
					must(t, a.releaseOf(who, unbound))
					maps.DeleteFunc(n.given, func(_ netip.Addr, o types.GCAttachment) bool { return o == who })
				case 1:
					if r.IntN(10) > 0 {
						break
					}
					kept := []types.GCAttachment{who, owner("nobody")}
					must(t, a.releaseBut(kept, unbound))
					maps.DeleteFunc(n.given, func(_ netip.Addr, o types.GCAttachment) bool { return o != who })
				default:
					got, err := a.give(who, subnets(c.subnet))
					want, ok := n.give(who)
					if (err == nil) != ok || ok && (len(got) != 1 || got[0].Addr() != want || got[0].Masked().String() != c.subnet) {
						t.Fatalf("step %d: got %v %v, want %v %v", step, got, err, want, ok)
					}
				}
				taken, err := a.taken()
				must(t, err)
				if !slices.Equal(sorted(taken), sorted(n.given)) {
					t.Fatalf("step %d: given %v, want %v", step, sorted(taken), sorted(n.given))
				}
			}
		})
	}
}

func sorted[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestExhausted checks that no address is allocated if one of two ranges has no free address, and
// that the error names that range in the same way as the CNI plugin host-local.
func TestExhausted(t *testing.T) {
	a := addresses{dir: t.TempDir()}
	ranges := subnets("fd00::/64", "10.0.0.0/30")
	if got, err := a.give(owner("a"), ranges); err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	if got, err := a.give(owner("b"), ranges); len(got) != 0 || err == nil ||
		err.Error() != "no IP addresses available in range set: 10.0.0.1-10.0.0.2" {
		t.Errorf("%v %v", got, err)
	}
	if taken, err := a.taken(); err != nil || len(taken) != 2 {
		t.Errorf("left: %v %v", taken, err)
	}
}

// TestHostLocalsFiles checks that addresses that the plugin host-local has allocated are not
// allocated again, and that they are freed when their owner is detached.
func TestHostLocalsFiles(t *testing.T) {
	a := addresses{dir: t.TempDir()}
	for name, text := range map[string]string{"10.0.0.2": "old\r\neth0", "10.0.0.3": "old\r\nnet1",
		"10.0.0.4": "", "last_reserved_ip.0": "10.0.0.250", "lock": ""} {
		must(t, os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600))
	}
	for _, want := range []string{"10.0.0.251", "10.0.0.252", "10.0.0.253", "10.0.0.254", "10.0.0.5"} {
		if got, err := a.give(owner(want), subnets("10.0.0.0/24")); err != nil || got[0].String() != want+"/24" {
			t.Fatalf("got %v %v, want %s", got, err, want)
		}
	}
	content, err := os.ReadFile(filepath.Join(a.dir, "10.0.0.5"))
	if err != nil || string(content) != "10.0.0.5\r\neth0" {
		t.Errorf("%q %v", content, err)
	}
	must(t, a.releaseOf(owner("old"), unbound))
	if taken, err := a.taken(); err != nil || len(taken) != 7 || taken[netip.MustParseAddr("10.0.0.2")] {
		t.Errorf("left: %v %v", sorted(taken), err)
	}
}

// TestTogether checks that owners that request addresses concurrently get different addresses.
func TestTogether(t *testing.T) {
	a := addresses{dir: filepath.Join(t.TempDir(), "made")}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := a.give(owner(fmt.Sprint(i)), subnets("10.0.0.0/24", "fd00::/64")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken, err := a.taken(); err != nil || len(taken) != 40 {
		t.Errorf("%d given: %v", len(taken), err)
	}
}

func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"no object":  `[]`,
		"no bridge":  `{"dataDir": "/d", "subnets": ["10.0.0.0/24"]}`,
		"no range":   `{"bridge": "b", "dataDir": "/d"}`,
		"no place":   `{"bridge": "b", "subnets": ["10.0.0.0/24"]}`,
		"too small":  `{"bridge": "b", "dataDir": "/d", "subnets": ["10.0.0.0/31"]}`,
		"no address": `{"bridge": "b", "dataDir": "/d", "subnets": ["10.0.0/24"]}`,
	} {
		if c, err := parse([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	c, err := parse([]byte(`{"bridge": "b", "dataDir": "/d", "name": "n", "subnets": ["10.0.0.7/24"], ` +
		`"runtimeConfig": {"portMappings": null, "bandwidth": null}}`))
	if err != nil || c.Subnets[0].String() != "10.0.0.0/24" || len(c.delegates()) != 0 ||
		!strings.HasSuffix(c.addresses().dir, "/d/n") {
		t.Errorf("%+v %v", c, err)
	}
}
