// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// Table contains the elements of nftables sets for the services of one IP family, and the changes
// that Take has not returned yet.
type Table struct {
	family  Family
	ports   map[Name]*entry
	claims  map[string][]Name // ports by key of a claimed frontend, oldest first; the first port has the frontend
	shared  map[Element]int   // number of ports that want an element
	classes map[Class]int
	pending map[address]*change     // nil while changes are not recorded, from Adopt until Diff
	seed    map[string][2]Endpoints // by key of the cluster IP: endpoints found in the kernel, in the order of their slots
	flows
}

// entry is a port with the elements that were computed from it.
type entry struct {
	port  *Port
	built *compiled
}

// address identifies an element by its set and key.
type address struct {
	set Set
	key string
}

// change is the change of the value of one key. A nil value means that no element has the key.
type change struct{ before, after *string }

// NewTable returns a table of an IP family, without services.
func NewTable(f Family) *Table {
	return &Table{
		family: f, ports: map[Name]*entry{}, claims: map[string][]Name{},
		shared: map[Element]int{}, classes: map[Class]int{}, pending: map[address]*change{},
		flows: flows{departed: map[Frontend]bool{}, suspects: map[Frontend]bool{}},
	}
}

// Set sets the port with a name. If p is nil, Set removes it.
func (t *Table) Set(name Name, p *Port) {
	old := t.ports[name]
	if old == nil && p == nil {
		return
	}
	affected := map[Name]*compiled{name: nil} // the previous elements of each affected port
	if old != nil {
		affected[name] = old.built
		for _, f := range old.port.Frontends() {
			t.unclaim(f, name, affected)
		}
		delete(t.ports, name)
	}
	if p != nil {
		t.ports[name] = &entry{port: p, built: affected[name]}
		for _, f := range p.Frontends() {
			t.claim(f, name, affected)
		}
	}
	t.rebuild(affected)
	t.suspect(name, old, p, affected)
}

func (t *Table) order(a, b Name) int {
	if c := cmp.Compare(t.ports[a].port.Created, t.ports[b].port.Created); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func (t *Table) claim(f Frontend, name Name, affected map[Name]*compiled) {
	key := f.key()
	list := t.claims[key]
	if slices.Contains(list, name) {
		return
	}
	list = append(list, name)
	if len(list) > 1 {
		loser := list[0]
		slices.SortFunc(list, t.order)
		if list[0] != loser {
			affected[loser] = t.ports[loser].built
		}
	}
	t.claims[key] = list
}

func (t *Table) unclaim(f Frontend, name Name, affected map[Name]*compiled) {
	key := f.key()
	list := t.claims[key]
	i := slices.Index(list, name)
	if i < 0 {
		return
	}
	if i == 0 && len(list) > 1 {
		affected[list[1]] = t.ports[list[1]].built
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(t.claims, key)
		return
	}
	t.claims[key] = list
}

// rebuild computes the elements of the affected ports again. affected maps each port to its
// previous elements. An element may move from one port to another, so rebuild records all removals
// before the additions.
func (t *Table) rebuild(affected map[Name]*compiled) {
	type step struct{ old, new *compiled }
	var steps []step
	for n, old := range affected {
		s := step{old: old}
		if e := t.ports[n]; e != nil {
			won := func(f Frontend) bool { return t.claims[f.key()][0] == n }
			e.built = compile(e.port, won, t.slots(old, e.port.VIP.key()))
			s.new = e.built
		}
		steps = append(steps, s)
	}
	for _, s := range steps {
		missing(s.old, s.new, t.remove)
		s.old.shared(func(e Element) {
			if t.shared[e]--; t.shared[e] == 0 {
				delete(t.shared, e)
				t.remove(e)
			}
		})
	}
	for _, s := range steps {
		missing(s.new, s.old, t.add)
		s.new.shared(func(e Element) {
			if t.shared[e]++; t.shared[e] == 1 {
				t.add(e)
			}
		})
	}
}

// slots returns the endpoints of a cluster IP in their current slots.
func (t *Table) slots(c *compiled, vip string) [2]Endpoints {
	if c != nil && c.vip == vip {
		return c.slots
	}
	return t.seed[vip]
}

// missing calls f with the elements of a that are not in b.
func missing(a, b *compiled, f func(Element)) {
	if a == nil {
		return
	}
	if b == nil || a.vip != b.vip || a.sticky != b.sticky {
		a.each(f)
		return
	}
	if a.class != "" && a.class != b.class {
		f(a.internal())
	}
	has := contains(b.fixed)
	for _, e := range a.fixed {
		if !has(e) {
			f(e)
		}
	}
	for l := range a.slots {
		for i := range a.slots[l].Len() {
			if i >= b.slots[l].Len() || b.slots[l].at(i) != a.slots[l].at(i) {
				f(a.slotElement(List(l), i))
			}
		}
		if a.sticky {
			missingSticky(a, b, List(l), f)
		}
	}
}

// few is the maximum length of a list that is searched linearly by contains.
const few = 8

// contains returns a function that reports whether an element is in the list.
func contains(list []Element) func(Element) bool {
	if len(list) <= few {
		return func(e Element) bool { return slices.Contains(list, e) }
	}
	set := make(map[Element]bool, len(list))
	for _, e := range list {
		set[e] = true
	}
	return func(e Element) bool { return set[e] }
}

func missingSticky(a, b *compiled, l List, f func(Element)) {
	kept := map[string]bool{}
	for e := range b.slots[l].each {
		kept[e] = true
	}
	for e := range a.slots[l].each {
		if !kept[e] {
			f(a.stickyElement(l, e))
		}
	}
}

// remove records that an element is no longer wanted.
func (t *Table) remove(e Element) {
	t.drop(e)
	t.depart(e)
}

// add records that an element is wanted.
func (t *Table) add(e Element) {
	t.arrive(e)
	t.put(e)
}

func (t *Table) drop(e Element) {
	t.count(e, -1)
	if t.pending == nil {
		return
	}
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

func (t *Table) put(e Element) {
	t.count(e, 1)
	if t.pending == nil {
		return
	}
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

// Uses reports whether any service's frontends have the class (the way to choose an endpoint).
func (t *Table) Uses(c Class) bool { return t.classes[c] > 0 }

// Dirty reports whether Take would return changes.
func (t *Table) Dirty() bool { return len(t.pending) > 0 }

// Changes are applied to the kernel in one transaction, deletions first.
type Changes struct {
	Delete, Add []Element
}

// Len returns the number of elements to delete and add.
func (c Changes) Len() int { return len(c.Delete) + len(c.Add) }

// Take returns the changes since the last call of Take, in no particular order, and clears them.
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
	t.pending = map[address]*change{} // a new map, because iterating over a map that was once large is slow
	return out
}

// Contents contains the elements of each set: values by key.
type Contents [NumSets]map[string]string

// NewContents returns empty contents.
func NewContents() *Contents {
	var c Contents
	for i := range c {
		c[i] = map[string]string{}
	}
	return &c
}

func (c *Contents) len() int {
	n := 0
	for _, elements := range c {
		n += len(elements)
	}
	return n
}

// Contents returns all wanted elements.
func (t *Table) Contents() *Contents {
	out := NewContents()
	t.each(func(e Element) { out[e.Set][e.Key] = e.Value })
	return out
}

// each calls f with every wanted element.
func (t *Table) each(f func(Element)) {
	for _, e := range t.ports {
		e.built.each(f)
	}
	for e := range t.shared {
		f(e)
	}
	for at := range t.departed {
		f(departedElement(at))
	}
}

// Adopt takes over the elements found in the kernel. It must be called before the first Set.
// Endpoints keep the slots that they have in the kernel. UDP frontends in the kernel that no port
// has count as departed. Changes are not recorded until Diff, which the caller must call after it
// has set all ports.
func (t *Table) Adopt(found *Contents) {
	t.pending = nil
	t.adoptFrontends(found)
	slots := map[string]*[2][]string{}
	for key, value := range found[EndpointSlots] {
		t.adoptSlot(slots, key, value, len(found[EndpointSlots]))
	}
	for key, value := range found[StickyEndpoints] {
		if len(value) > portSize {
			t.adoptSlot(slots, key, value[portSize:], len(found[StickyEndpoints]))
		}
	}
	t.seed = make(map[string][2]Endpoints, len(slots))
	size := t.family.Size() + portSize
	for vip, lists := range slots {
		var seed [2]Endpoints
		for l, list := range lists {
			for i := range list {
				if list[i] == "" { // the slot is free; zeros match no endpoint
					list[i] = strings.Repeat("\x00", size)
				}
			}
			seed[l] = Endpoints{size: size}.of(list)
		}
		t.seed[vip] = seed
	}
}

// adoptSlot records the endpoint of one slot. It ignores slots from limit on, which a valid table
// does not have.
func (t *Table) adoptSlot(slots map[string]*[2][]string, key, value string, limit int) {
	vip, slot, ok := splitSlot(key)
	list, i := slot/LocalSlots, int(slot%LocalSlots)
	if !ok || len(value) != t.family.Size()+portSize || i >= limit {
		return
	}
	lists := slots[vip]
	if lists == nil {
		lists = new([2][]string)
		slots[vip] = lists
	}
	for len(lists[list]) <= i {
		lists[list] = append(lists[list], "")
	}
	lists[list][i] = value
}

func splitSlot(key string) (vip string, slot uint32, ok bool) {
	if len(key) < 4 {
		return "", 0, false
	}
	n := len(key) - 4
	return key[:n], binary.NativeEndian.Uint32([]byte(key[n:])), true
}

// Diff returns the changes that turn the elements found in the kernel into the wanted elements. It
// drops all pending changes, because the result includes them, and the slots that Adopt has
// recorded.
func (t *Table) Diff(found *Contents) Changes {
	t.pending = map[address]*change{}
	t.seed = nil
	t.suspectDeparted()
	if found.len() > 0 {
		return diff(found, t.Contents())
	}
	var out Changes
	t.each(func(e Element) { out.Add = append(out.Add, e) })
	return out
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
