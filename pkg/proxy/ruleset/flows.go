// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"maps"
	"slices"
)

// flows records UDP frontends whose flows may be stale. The kernel sends all packets of a flow to
// the destination of the first packet, even if the rules have changed since.
type flows struct {
	// departed are frontends that no port has any more, but that may still have stale flows. Each
	// keeps an element in the kernel, from which a new process learns of the frontend. The element
	// has no effect on packets.
	departed map[Frontend]bool
	// suspects are frontends whose flows may have become stale since the last call of
	// ForgetSuspects.
	suspects map[Frontend]bool
}

// departedElement returns the element that the kernel keeps for a frontend that no port has any
// more. Its class has no chain.
func departedElement(f Frontend) Element { return Element{Services, f.key(), Class{}.Value()} }

// depart records that a port loses the frontend of an element.
func (t *Table) depart(e Element) {
	if e.Set != Services {
		return
	}
	if f, ok := t.family.udpFrontend(e.Key); ok {
		t.departed[f] = true
		t.put(departedElement(f))
	}
}

// arrive records that a port gets the frontend of an element.
func (t *Table) arrive(e Element) {
	if e.Set != Services {
		return
	}
	if f, ok := t.family.udpFrontend(e.Key); ok && t.departed[f] {
		delete(t.departed, f)
		t.drop(departedElement(f))
	}
}

// Forget drops a departed frontend, which no port has any more, unless its flows must be checked
// again. The caller must have deleted the stale flows at the frontend.
func (t *Table) Forget(f Frontend) {
	if t.departed[f] && !t.suspects[f] {
		delete(t.departed, f)
		t.drop(departedElement(f))
	}
}

// adoptFrontends records the UDP frontends in the kernel's nftables table as departed: as frontends
// that no port has. Those that a port has lose this state when the port is set.
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

// suspect records the frontends whose flows may be stale because the port name has changed.
// affected also contains other ports that have gained or lost frontends by that change.
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

// leavesStale reports whether the change of a port can make flows stale: it was added or removed,
// its frontends differ, an endpoint was removed, or it got its first endpoint.
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

// ForgetSuspects clears the suspects. Callers call it when a check of the suspects' flows is
// queued.
func (t *Table) ForgetSuspects() { t.suspects = map[Frontend]bool{} }

// Serving returns the endpoints to which flows at a UDP frontend may continue. It returns false if
// no port has the frontend.
func (t *Table) Serving(f Frontend) (Endpoints, bool) {
	list := t.claims[f.key()]
	if len(list) == 0 {
		return Endpoints{}, false
	}
	p := t.ports[list[0]].port
	if t.claims[p.VIP.key()][0] != list[0] { // without its own cluster IP, a port has no elements
		return Endpoints{}, false
	}
	return p.Serving, true
}
