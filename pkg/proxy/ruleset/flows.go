// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"maps"
	"slices"
)

// flows is what a table knows of UDP frontends whose flows may be stale: the kernel sends
// the packets of a flow on the way of its first packet, whatever the rules say since.
type flows struct {
	// departed are frontends that no port has any more and whose flows may not be deleted yet.
	// Each has an element in the kernel, without effect on packets, so that a process
	// that starts later knows that it has been a frontend.
	departed map[Frontend]bool
	// suspects are frontends whose flows a change may have made stale, until ForgetSuspects.
	suspects map[Frontend]bool
}

// departedElement is the element of a frontend that no port has: no chain belongs to its class.
func departedElement(f Frontend) Element { return Element{Services, f.key(), Class{}.Value()} }

// depart notes that the element of a frontend goes.
func (t *Table) depart(e Element) {
	if e.Set != Services {
		return
	}
	if f, ok := t.family.udpFrontend(e.Key); ok {
		t.departed[f] = true
		t.put(departedElement(f))
	}
}

// arrive notes that the element of a frontend comes.
func (t *Table) arrive(e Element) {
	if e.Set != Services {
		return
	}
	if f, ok := t.family.udpFrontend(e.Key); ok && t.departed[f] {
		delete(t.departed, f)
		t.drop(departedElement(f))
	}
}

// Forget drops a frontend if it has departed: no stale flow is left of it.
func (t *Table) Forget(f Frontend) {
	if t.departed[f] && !t.suspects[f] {
		delete(t.departed, f)
		t.drop(departedElement(f))
	}
}

// adoptFrontends notes the UDP frontends found in the kernel.
func (t *Table) adoptFrontends(found *Contents) {
	for key := range found[Services] {
		if f, ok := t.family.udpFrontend(key); ok {
			t.departed[f] = true
		}
	}
}

func (t *Table) suspectDeparted() {
	for f := range t.departed {
		t.suspects[f] = true
	}
}

// suspect notes the frontends whose flows may be stale after the port of that name has
// changed; affected are also the other ports that have been given frontends, or have lost them.
func (t *Table) suspect(name Name, old *entry, p *Port, affected map[Name]*compiled) {
	var before *Port
	if old != nil {
		before = old.port
	}
	if leavesStale(before, p) {
		t.suspectAll(before)
		t.suspectAll(p)
	}
	for n := range affected {
		if e := t.ports[n]; e != nil && n != name {
			t.suspectAll(e.port)
		}
	}
}

func (t *Table) suspectAll(p *Port) {
	if p == nil || p.VIP.Protocol != UDP {
		return
	}
	for _, f := range p.Frontends() {
		t.suspects[f] = true
	}
}

// leavesStale reports whether flows may be stale after a port has changed: it has or had
// other frontends, an endpoint is gone, or the first one is there.
func leavesStale(before, now *Port) bool {
	if before == nil || now == nil || !slices.Equal(before.Frontends(), now.Frontends()) {
		return true
	}
	if before.Serving.Len() == 0 {
		return now.Serving.Len() > 0
	}
	serving := make(map[string]bool, now.Serving.Len())
	for e := range now.Serving.each {
		serving[e] = true
	}
	for e := range before.Serving.each {
		if !serving[e] {
			return true
		}
	}
	return false
}

// Suspects returns the UDP frontends whose flows may be stale since ForgetSuspects.
func (t *Table) Suspects() []Frontend { return slices.Collect(maps.Keys(t.suspects)) }

// ForgetSuspects is to be called when the flows at the suspects are being looked at.
func (t *Table) ForgetSuspects() { t.suspects = map[Frontend]bool{} }

// Serving returns the endpoints to which flows at a UDP frontend may go; false if no port has it.
func (t *Table) Serving(f Frontend) (Endpoints, bool) {
	list := t.claims[f.key()]
	if len(list) == 0 {
		return Endpoints{}, false
	}
	p := t.ports[list[0]].port
	if t.claims[p.VIP.key()][0] != list[0] { // without its cluster IP a port has no elements
		return Endpoints{}, false
	}
	return p.Serving, true
}
