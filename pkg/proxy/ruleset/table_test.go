// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func addrPort(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), 8080)
}

func vip(i int) Frontend {
	return Frontend{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), TCP, 80}
}

func web(n int) *Port {
	p := &Port{VIP: vip(1), Anywhere: n > 0}
	p.Cluster = Pack(addrPorts(n))
	return p
}

func addrPorts(n int) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range n {
		out = append(out, addrPort(i))
	}
	return out
}

// portGen generates ports that often claim the same frontends, because they have few different
// addresses, node ports and endpoints.
func portGen(t *rapid.T) *Port {
	pick := func(label string) []netip.AddrPort {
		var out []netip.AddrPort
		for i := range 12 {
			if rapid.Bool().Draw(t, fmt.Sprint(label, i)) {
				out = append(out, addrPort(i))
			}
		}
		return out
	}
	p := &Port{
		VIP: vip(rapid.IntRange(1, 4).Draw(t, "vip")), Created: int64(rapid.IntRange(0, 2).Draw(t, "created")),
		NodePort:      uint16(rapid.IntRange(0, 2).Draw(t, "nodePort")),
		Sticky:        uint32(rapid.IntRange(0, 1).Draw(t, "sticky") * 60),
		InternalLocal: rapid.Bool().Draw(t, "internalLocal"), ExternalLocal: rapid.Bool().Draw(t, "externalLocal"),
		Cluster: Pack(pick("cluster")), Local: Pack(pick("local")),
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "external") {
		p.External = append(p.External, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
	}
	if rapid.Bool().Draw(t, "guarded") {
		p.Guarded = p.External
		p.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.128/25")}
	}
	p.VIP.Protocol = rapid.SampledFrom([]Protocol{TCP, UDP}).Draw(t, "protocol")
	p.Anywhere = p.Cluster.Len()+p.Local.Len() > 0
	for e := range p.Local.All() {
		p.OnNode = append(p.OnNode, e.Addr())
	}
	return p
}

// apply applies changes to a model of the kernel. Like the kernel, it fails if a deleted element
// does not exist or an added one already exists.
func apply(t rapid.TB, model *Contents, c Changes) {
	for _, e := range c.Delete {
		if v, ok := model[e.Set][e.Key]; !ok || v != e.Value {
			t.Fatalf("deletes %s %x: %x, but there is %x (%v)", e.Set, e.Key, e.Value, v, ok)
		}
		delete(model[e.Set], e.Key)
	}
	for _, e := range c.Add {
		if _, ok := model[e.Set][e.Key]; ok {
			t.Fatalf("adds %s %x again", e.Set, e.Key)
		}
		model[e.Set][e.Key] = e.Value
	}
}

// unordered returns the contents in a form in which the order of endpoints does not matter: the
// numbered slots of a service, each with one endpoint, become one sorted list of endpoints. It fails
// if the numbers of the slots have gaps.
func unordered(t rapid.TB, c *Contents) map[string][]string {
	out := map[string][]string{}
	for s := range c {
		slots := map[string][]uint32{}
		for k, v := range c[s] {
			at := Set(s).String() + " " + fmt.Sprintf("%x", k)
			if Set(s) == EndpointSlots || Set(s) == StickyEndpoints {
				vip, slot, ok := splitSlot(k)
				if !ok {
					t.Fatalf("key %x", k)
				}
				at = fmt.Sprintf("%s %x %d", Set(s), vip, slot/LocalSlots)
				slots[at] = append(slots[at], slot%LocalSlots)
			}
			out[at] = append(out[at], v)
		}
		for at, list := range slots {
			slices.Sort(list)
			if list[0] != 0 || list[len(list)-1] != uint32(len(list)-1) {
				t.Fatalf("%s has slots %v", at, list)
			}
		}
	}
	for _, v := range out {
		slices.Sort(v)
	}
	return out
}

// present returns the contents without the elements of departed frontends, which no port has any
// more.
func present(c *Contents) *Contents {
	out := *c
	out[Services] = maps.Clone(c[Services])
	maps.DeleteFunc(out[Services], func(_, v string) bool { return v == Class{}.Value() })
	return &out
}

// TestChangesEqualRebuild applies random changes in transactions of random sizes. It checks that
// the kernel's contents are then those of a table that is built from the final ports.
func TestChangesEqualRebuild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model, ports := NewTable(IPv4), NewContents(), map[Name]*Port{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				name, p := Name(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")), portGen(t)
				ports[name] = p
				table.Set(name, p)
			},
			"remove": func(t *rapid.T) {
				name := Name(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"))
				delete(ports, name)
				table.Set(name, nil)
			},
			"forget": func(t *rapid.T) {
				table.ForgetSuspects()
				for f := range maps.Clone(table.departed) {
					table.Forget(f)
				}
			},
			"commit": func(t *rapid.T) { apply(t, model, table.Take()) },
			"restart": func(t *rapid.T) {
				table = NewTable(IPv4)
				table.Adopt(model)
				for n, p := range ports {
					table.Set(n, p)
				}
				apply(t, model, table.Diff(model))
				if table.Dirty() {
					t.Fatal("changes left after the comparison")
				}
			},
			"": func(t *rapid.T) {
				fresh := NewTable(IPv4)
				for n, p := range ports {
					fresh.Set(n, p)
				}
				want := NewContents()
				apply(t, want, fresh.Take())
				if diff := cmp.Diff(unordered(t, present(want)), unordered(t, present(table.Contents()))); diff != "" {
					t.Fatalf("table (-fresh +changed):\n%s", diff)
				}
				if !table.Dirty() {
					if diff := cmp.Diff(unordered(t, present(want)), unordered(t, present(model))); diff != "" {
						t.Fatalf("kernel (-fresh +changed):\n%s", diff)
					}
				}
				used := map[Class]bool{}
				for _, s := range []Set{Services, Externals} {
					for _, v := range table.Contents()[s] {
						if c, ok := ParseValue(v); ok && c.Action == Pick {
							used[c] = true
						}
					}
				}
				for c := range used {
					if !table.Uses(c) {
						t.Fatalf("class %+v is used", c)
					}
				}
				if len(used) != len(table.classes) {
					t.Fatalf("%d classes counted, %d used", len(table.classes), len(used))
				}
			},
		})
	})
}

// TestCostOfAChange checks that the number of changed elements of nftables sets depends neither on
// the size of the service nor on the number of services.
func TestCostOfAChange(t *testing.T) {
	for _, n := range []int{1, 10, 1000} {
		table := NewTable(IPv4)
		for i := range n {
			table.Set(Name(fmt.Sprint("other", i)),
				&Port{VIP: Frontend{netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), TCP, 80}})
		}
		table.Set("web", web(n))
		table.Take()

		table.Set("web", web(n+1))
		if got := table.Take().Len(); got != 3 { // the new slot is added, and the class is deleted and added
			t.Errorf("an endpoint more than %d: %d elements, want 3", n, got)
		}
		less := web(n + 1)
		less.Cluster = Pack(addrPorts(n + 1)[1:])
		table.Set("web", less)
		got := table.Take()
		if got.Len() != 5 { // the last endpoint moves into the first slot
			t.Errorf("an endpoint less than %d: %d elements, want 5: %v", n+1, got.Len(), got)
		}
		table.Set("web", less)
		if table.Dirty() {
			t.Error("the same again is a change")
		}
		swapped := *less
		swapped.Cluster = Pack(append(addrPorts(n + 1)[2:], addrPort(5000)))
		table.Set("web", &swapped)
		if got := table.Take().Len(); got != 2 {
			t.Errorf("one endpoint for another of %d: %d elements, want 2", n, got)
		}
	}
}

func TestClassKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Class{
			Action: Action(rapid.IntRange(1, 5).Draw(t, "action")), Source: Source(rapid.IntRange(0, 2).Draw(t, "source")),
			List: List(rapid.IntRange(0, 1).Draw(t, "list")), Masquerade: rapid.Bool().Draw(t, "masquerade"),
			Sticky: uint32(rapid.IntRange(0, 86400).Draw(t, "sticky")), N: rapid.Uint32().Draw(t, "n"),
		}
		if got, ok := ParseValue(c.Value()); !ok || got != c {
			t.Fatalf("%+v comes back as %+v, %v", c, got, ok)
		}
	})
}
