// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"maps"
	"slices"
)

// flows records UDP frontends whose flows may be stale. The kernel sends all packets of a flow to
// the destination of the first one, even if the rules have changed since.
type flows struct {
	// departed are frontends that no port has any more, but that may still have flows. Each keeps
	// an element in the kernel, which has no effect on packets, so that a process that starts
	// later knows that it was a frontend.
	departed map[Frontend]bool
	// suspects are frontends whose flows may have become stale since ForgetSuspects.
	suspects map[Frontend]bool
}

// departedElement returns the element of a frontend that no port has. Its class has no chain.
func departedElement(f Frontend) Element { return Element{Services, f.key(), Class{}.Value()} }

// depart records that the element of a frontend is removed.
func (t *Table) depart(e Element) {
	if e.Set != Services {
		return
	}
	if f, ok := t.family.udpFrontend(e.Key); ok {
		t.departed[f] = true
		t.put(departedElement(f))
	}
}

// arrive records that the element of a frontend is added.
func (t *Table) arrive(e Element) {
	if e.Set != Services {
		return
	}
	if f, ok := t.family.udpFrontend(e.Key); ok && t.departed[f] {
		delete(t.departed, f)
		t.drop(departedElement(f))
	}
}

// Forget drops a departed frontend. Callers call it when no stale flow is left at the frontend.
func (t *Table) Forget(f Frontend) {
	if t.departed[f] && !t.suspects[f] {
		delete(t.departed, f)
		t.drop(departedElement(f))
	}
}

// adoptFrontends records the UDP frontends found in the kernel.
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

// suspect records the frontends whose flows may be stale after a port has changed. affected also
// holds the other ports that gained or lost frontends by the change.
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

// leavesStale reports whether flows may be stale after a port has changed: its frontends differ, an
// endpoint was removed, or it got its first endpoint.
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

// Suspects returns the UDP frontends whose flows may have become stale since ForgetSuspects.
func (t *Table) Suspects() []Frontend { return slices.Collect(maps.Keys(t.suspects)) }

// ForgetSuspects clears the suspects. Callers call it when a check of their flows is queued.
func (t *Table) ForgetSuspects() { t.suspects = map[Frontend]bool{} }

// Serving returns the endpoints to which flows at a UDP frontend may go. It returns false if no
// port has the frontend.
func (t *Table) Serving(f Frontend) (Endpoints, bool) {
	list := t.claims[f.key()]
	if len(list) == 0 {
		return Endpoints{}, false
	}
	p := t.ports[list[0]].port
	if t.claims[p.VIP.key()][0] != list[0] { // a port that does not have its own cluster IP has no elements
		return Endpoints{}, false
	}
	return p.Serving, true
}
