// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// attempt is one look at all pods of a gang, each beside those before it. s.mu is
// held, but for its breaks.
type attempt struct {
	s       *Scheduler
	profile *profile.Profile
	items   []*queue.Item
	size    int // how many must fit

	out    []decision // by place in items
	fits   int        // how many have a node
	events scheduling.Event

	// nominated is where the pods were expected before.
	nominated []string
	// rank is the lowest priority of the gang's pods: no pod of theirs, nor one
	// above it, makes room for any of them.
	rank     int32
	preempts bool
	// apart says that what speaks against a node for a pod of the gang is on that
	// node, whichever it is.
	apart bool
	// waits says that the room made for the gang is not free yet.
	waits bool

	breaks
}

// decideGang finds nodes for the pods of a gang. When fewer than asked for fit,
// nothing is kept of it, unless all that are asked for fit when pods of lower
// priority go: then these are to go. Now and then yield is called, while the cell
// is not locked and is as if nobody looked for the gang.
func (s *Scheduler) decideGang(p *profile.Profile, items []*queue.Item, size int, yield func()) []decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	for begun := 1; ; begun++ {
		a := s.newAttempt(p, items, size)
		a.since = s.cfg.Clock.Now()
		if begun < maxAttempts {
			a.yield = yield
		}
		if a.decide() {
			return a.out
		}
	}
}

// decide returns false when it was overtaken, and has left nothing.
func (a *attempt) decide() bool {
	a.placeAll()
	if !a.overtaken && a.fits < a.size && a.preempts && a.clear() {
		return true
	}
	switch {
	case a.overtaken:
		return false
	case a.fits >= a.size:
		a.settle()
	default:
		a.refuse()
	}
	return true
}

func (s *Scheduler) newAttempt(p *profile.Profile, items []*queue.Item, size int) *attempt {
	a := &attempt{
		s: s, profile: p, items: items, size: size, apart: true,
		out: make([]decision, len(items)), nominated: make([]string, len(items)),
	}
	a.waits = len(s.gangs.awaited[gangKey(items[0].Pod)]) > 0
	a.preempts = p.Preemption != nil && !a.waits
	for i, item := range items {
		pod := scheduling.Pod{Pod: item.Pod}
		if i == 0 || pod.Priority() < a.rank {
			a.rank = pod.Priority()
		}
		a.preempts = a.preempts && mayPreempt(item.Pod)
		a.nominated[i] = s.nominated.node[item.Pod.UID]
	}
	return a
}

// placeAll finds nodes for those that fit as things are.
func (a *attempt) placeAll() {
	for i := range a.items {
		if !a.preempts && a.fits+len(a.items)-i < a.size {
			return // it is decided
		}
		if !a.breathe() {
			return
		}
		a.place(i)
	}
}

func (a *attempt) place(i int) {
	d := &a.out[i]
	e, err := a.s.evaluateItem(a.profile, a.items[i])
	if err != nil {
		d.message = err.Error()
		return
	}
	if n := e.best(a.s.cfg.Rand); n != nil {
		a.assume(i, e, n)
		return
	}
	*d = decision{events: e.events(), reject: e.reject, objected: e.objections()}
	d.message = fitMessage(len(a.s.view.Nodes()), d.reject, d.objected, "")
	a.events |= d.events
}

// assume accounts for a pod on a node. It returns false when the node cannot
// serve it after all.
func (a *attempt) assume(i int, e *evaluation, n *scheduling.Node) bool {
	d, err := a.s.assume(e, n)
	if err != nil {
		a.out[i].message = err.Error()
		return false
	}
	a.out[i], a.fits, a.placed = d, a.fits+1, append(a.placed, i)
	a.apart = a.apart && len(e.cell) == 0
	return true
}

// settle keeps what was found.
func (a *attempt) settle() {
	key := gangKey(a.items[0].Pod)
	delete(a.s.gangs.awaited, key)
	a.s.gangs.binding[key] = true
	for i, item := range a.items {
		if d := &a.out[i]; d.node != "" {
			a.s.gangs.set(item.Pod, true)
		} else {
			d.about = item.Pod
			a.s.queue.Unschedulable(item, d.events, false)
		}
	}
}

// refuse takes back what was found. Pods that room is being made for stay
// nominated.
func (a *attempt) refuse() {
	for i, item := range a.items {
		d := &a.out[i]
		if d.node != "" || d.message == "" {
			a.s.forget(item.Pod, *d)
			*d = a.s.refusal(reasonGangFits)
			d.events = a.events
		}
		if a.waits {
			d.nominate, d.events = a.nominated[i], d.events|scheduling.PodRemoved
			d.local = len(a.s.gangs.awaited[gangKey(item.Pod)]) > 0
		}
		a.nominate(i, d.nominate)
		a.s.park(item, d)
	}
}

// nominate has a pod expected on a node; "": on none.
func (a *attempt) nominate(i int, node string) {
	if c, err := a.s.kinds.of(a.profile, a.items[i]); err == nil {
		a.s.nominateTo(c.pod, node)
	}
}
