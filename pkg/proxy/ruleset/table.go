// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Table is the elements that the services of one family want, and those
// changes of them that have not been taken yet.
type Table struct {
	family  Family
	ports   map[Name]*Port
	built   map[Name]*compiled
	claims  map[Frontend][]Name // sorted: the first has it
	shared  map[Element]int     // how many ports want it
	classes map[Class]int
	pending map[address]*change
	seed    map[string][2][]netip.AddrPort // slots found in the kernel, by cluster IP key
}

// address is where an element is.
type address struct {
	set Set
	key string
}

// change is what becomes of one key: nil means that there is none.
type change struct{ before, after *string }

// NewTable returns the table of no services.
func NewTable(f Family) *Table {
	return &Table{
		family: f, ports: map[Name]*Port{}, built: map[Name]*compiled{}, claims: map[Frontend][]Name{},
		shared: map[Element]int{}, classes: map[Class]int{}, pending: map[address]*change{},
	}
}

// Set makes p the port of that name; nil removes it.
func (t *Table) Set(name Name, p *Port) {
	old := t.ports[name]
	if old == nil && p == nil {
		return
	}
	affected := map[Name]bool{name: true}
	if old != nil {
		for _, f := range old.Frontends() {
			t.unclaim(f, name, affected)
		}
		delete(t.ports, name)
	}
	if p != nil {
		t.ports[name] = p
		for _, f := range p.Frontends() {
			t.claim(f, name, affected)
		}
	}
	t.rebuild(affected)
}

func (t *Table) order(a, b Name) int {
	if c := cmp.Compare(t.ports[a].Created, t.ports[b].Created); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func (t *Table) claim(f Frontend, name Name, affected map[Name]bool) {
	list := t.claims[f]
	if slices.Contains(list, name) {
		return
	}
	list = append(list, name)
	if len(list) > 1 {
		loser := list[0]
		slices.SortFunc(list, t.order)
		if list[0] != loser {
			affected[loser] = true
		}
	}
	t.claims[f] = list
}

func (t *Table) unclaim(f Frontend, name Name, affected map[Name]bool) {
	list := t.claims[f]
	i := slices.Index(list, name)
	if i < 0 {
		return
	}
	if i == 0 && len(list) > 1 {
		affected[list[1]] = true
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(t.claims, f)
		return
	}
	t.claims[f] = list
}

// rebuild compiles the ports again. What one of them gives up may be what
// another one gets, so first all removals are noted, then all additions.
func (t *Table) rebuild(names map[Name]bool) {
	type step struct{ old, new *compiled }
	var steps []step
	for n := range names {
		s := step{old: t.built[n]}
		if p := t.ports[n]; p != nil {
			won := func(f Frontend) bool { return t.claims[f][0] == n }
			s.new = compile(p, won, t.slots(s.old, p.VIP.key()))
			t.built[n] = s.new
		} else {
			delete(t.built, n)
		}
		steps = append(steps, s)
	}
	for _, s := range steps {
		missing(s.old, s.new, t.remove)
		for e := range sharedOf(s.old) {
			if t.shared[e]--; t.shared[e] == 0 {
				delete(t.shared, e)
				t.remove(e)
			}
		}
	}
	for _, s := range steps {
		missing(s.new, s.old, t.add)
		for e := range sharedOf(s.new) {
			if t.shared[e]++; t.shared[e] == 1 {
				t.add(e)
			}
		}
	}
}

func sharedOf(c *compiled) map[Element]struct{} {
	if c == nil {
		return nil
	}
	return c.shared
}

// slots are the slots that the endpoints of a cluster IP have now.
func (t *Table) slots(c *compiled, vip string) [2][]netip.AddrPort {
	if c != nil && c.vip == vip {
		return c.slots
	}
	return t.seed[vip]
}

// missing calls f with the elements of a that b has not.
func missing(a, b *compiled, f func(Element)) {
	if a == nil {
		return
	}
	if b == nil || a.vip != b.vip || a.sticky != b.sticky {
		a.each(f)
		return
	}
	for e := range a.fixed {
		if _, ok := b.fixed[e]; !ok {
			f(e)
		}
	}
	for l := range a.slots {
		for i, e := range a.slots[l] {
			if i >= len(b.slots[l]) || b.slots[l][i] != e {
				f(a.slotElement(List(l), i))
			}
		}
		if a.sticky {
			missingSticky(a, b, List(l), f)
		}
	}
}

func missingSticky(a, b *compiled, l List, f func(Element)) {
	kept := map[netip.AddrPort]bool{}
	for _, e := range b.slots[l] {
		kept[e] = true
	}
	for _, e := range a.slots[l] {
		if !kept[e] {
			f(a.stickyElement(l, e))
		}
	}
}

func (t *Table) remove(e Element) {
	t.count(e, -1)
	at := address{e.Set, e.Key}
	c, ok := t.pending[at]
	if !ok {
		t.pending[at] = &change{before: &e.Value}
		return
	}
	if c.after = nil; c.before == nil {
		delete(t.pending, at)
	}
}

func (t *Table) add(e Element) {
	t.count(e, 1)
	at := address{e.Set, e.Key}
	c, ok := t.pending[at]
	if !ok {
		t.pending[at] = &change{after: &e.Value}
		return
	}
	if c.after = &e.Value; c.before != nil && *c.before == e.Value {
		delete(t.pending, at)
	}
}

func (t *Table) count(e Element, n int) {
	if e.Set != Services && e.Set != Externals {
		return
	}
	if c, ok := ParseValue(e.Value); ok && c.Action == Pick {
		if t.classes[c] += n; t.classes[c] == 0 {
			delete(t.classes, c)
		}
	}
}

// Uses tells whether some service chooses its endpoints by the class.
func (t *Table) Uses(c Class) bool { return t.classes[c] > 0 }

// Dirty tells whether Take has something to give.
func (t *Table) Dirty() bool { return len(t.pending) > 0 }

// Changes are applied in one transaction, deletions first.
type Changes struct {
	Delete, Add []Element
}

// Len is the number of elements.
func (c Changes) Len() int { return len(c.Delete) + len(c.Add) }

// Take returns the changes since the last Take, in no order, and forgets them.
func (t *Table) Take() Changes {
	var out Changes
	for at, c := range t.pending {
		if c.before != nil {
			out.Delete = append(out.Delete, Element{at.set, at.key, *c.before})
		}
		if c.after != nil {
			out.Add = append(out.Add, Element{at.set, at.key, *c.after})
		}
	}
	t.pending = map[address]*change{} // one that has been large takes long to walk
	return out
}

// Contents are elements by set and key.
type Contents [NumSets]map[string]string

// NewContents returns no elements.
func NewContents() *Contents {
	var c Contents
	for i := range c {
		c[i] = map[string]string{}
	}
	return &c
}

// Contents returns all elements that are wanted.
func (t *Table) Contents() *Contents {
	out := NewContents()
	put := func(e Element) { out[e.Set][e.Key] = e.Value }
	for _, c := range t.built {
		c.each(put)
	}
	for e := range t.shared {
		put(e)
	}
	return out
}

// Adopt tells the table what is in the kernel, before the first Set: endpoints
// found there keep their slots.
func (t *Table) Adopt(found *Contents) {
	t.seed = map[string][2][]netip.AddrPort{}
	for key, value := range found[Endpoints] {
		t.adoptSlot(key, value, len(found[Endpoints]))
	}
	for key, value := range found[StickyEndpoints] {
		if len(value) > 4 {
			t.adoptSlot(key, value[4:], len(found[StickyEndpoints]))
		}
	}
}

// adoptSlot notes one slot; there cannot be more of them than limit.
func (t *Table) adoptSlot(key, value string, limit int) {
	vip, slot, ok := splitSlot(key)
	e, valid := parseEndpoint(value, t.family)
	list, i := slot/LocalSlots, int(slot%LocalSlots)
	if !ok || !valid || i >= limit {
		return
	}
	slots := t.seed[vip]
	for len(slots[list]) <= i {
		slots[list] = append(slots[list], netip.AddrPort{})
	}
	slots[list][i] = e
	t.seed[vip] = slots
}

func splitSlot(key string) (vip string, slot uint32, ok bool) {
	if len(key) < 4 {
		return "", 0, false
	}
	n := len(key) - 4
	return key[:n], binary.NativeEndian.Uint32([]byte(key[n:])), true
}

// Diff returns what leads from the elements found in the kernel to those
// wanted. Pending changes are part of it and are forgotten, as is what Adopt was told.
func (t *Table) Diff(found *Contents) Changes {
	t.pending = map[address]*change{}
	t.seed = nil
	return diff(found, t.Contents())
}

func diff(found, want *Contents) Changes {
	var out Changes
	for s := range want {
		for k, v := range found[s] {
			if w, ok := want[s][k]; !ok || w != v {
				out.Delete = append(out.Delete, Element{Set(s), k, v})
			}
		}
		for k, v := range want[s] {
			if w, ok := found[s][k]; !ok || w != v {
				out.Add = append(out.Add, Element{Set(s), k, v})
			}
		}
	}
	return out
}
