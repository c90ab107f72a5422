// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// attempt is one try to place all pods of a gang. The caller holds s.mu, except during the pauses
// that file gangbreak.go describes.
type attempt struct {
	s       *Scheduler
	profile *profile.Profile
	items   []*queue.Item
	gang    gang
	size    int // number of pods that must fit at once

	out    []decision // decisions about the pods, with the same indexes as items
	fits   int        // number of pods that have a node so far
	events scheduling.Event
	// short says why the gang's PodGroup cannot be scheduled without evictions. It is "" if it can be, or
	// if the gang has no PodGroup.
	short string

	// nominated has the nodes to which the pods were nominated before the attempt, with the same
	// indexes as items.
	nominated []string
	// rank is the lowest priority among the gang's pods. Only pods with a priority below it may be
	// evicted for the gang.
	rank     int32
	preempts bool
	// apart is true if the results of all filters for a node depend on that node alone.
	apart bool
	// waits is true if pods that were evicted for the gang earlier have not left their nodes yet.
	waits bool

	breaks
}

// decideGang finds nodes for the pods of a gang. If too few pods fit, it chooses pods of lower
// priority to evict, provided that the gang fits then. Each time that it has held s.mu for maxHold,
// it undoes its changes, calls yield without the lock, and continues.
func (s *Scheduler) decideGang(p *profile.Profile, items []*queue.Item, g gang, yield func()) []decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	for begun := 1; ; begun++ {
		a := s.newAttempt(p, items, g)
		a.since = s.cfg.Clock.Now()
		if begun < maxAttempts {
			a.yield = yield
		}
		if a.decide() {
			return a.out
		}
	}
}

// decide tries to place the gang. It returns false if the attempt could not continue after a pause
// because nodes or pods had changed; all changes of the attempt are undone then.
func (a *attempt) decide() bool {
	a.placeAll()
	cleared, why := false, ""
	if !a.overtaken && a.fits < a.size {
		cleared, why = a.clear()
	}
	switch {
	case cleared:
	case a.overtaken:
		return false
	case a.fits >= a.size:
		a.settle()
	default:
		a.refuse(why)
	}
	return true
}

func (s *Scheduler) newAttempt(p *profile.Profile, items []*queue.Item, g gang) *attempt {
	a := &attempt{
		s: s, profile: p, items: items, gang: g, size: g.need(), apart: true,
		out: make([]decision, len(items)), nominated: make([]string, len(items)),
	}
	a.waits = len(s.gangs.awaited[g.key]) > 0
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

// placeAll places the pods that fit without evictions.
func (a *attempt) placeAll() {
	for i := range a.items {
		if a.tooFew(len(a.items)-i) && !a.preempts {
			return
		}
		if !a.breakIfDue() {
			return
		}
		a.place(i)
	}
	a.tooFew(0)
}

// tooFew reports whether the gang cannot reach its size any more, because too few pods, left, have not
// been tried.
func (a *attempt) tooFew(left int) bool {
	a.short = cmp.Or(a.short, a.gang.shortage(a.fits, left))
	return a.fits+left < a.size
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

// assume counts the pod with index i on node n. It returns false if the node cannot provide the
// pod's devices.
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

// settle ends a successful attempt: the pods keep the nodes that were found, and pods without a
// node become unschedulable.
func (a *attempt) settle() {
	delete(a.s.gangs.awaited, a.gang.key)
	a.s.gangs.binding[a.gang.key] = true
	for i, item := range a.items {
		if d := &a.out[i]; d.node == "" {
			d.about, item.Rejectors = item.Pod, d.rejectors()
			a.s.queue.Unschedulable(item, d.events, false)
		}
	}
}

// refuse ends a failed attempt: it takes all pods of the gang off the nodes that were found. If
// victims of the gang are still terminating, its pods keep their nominations. why says why preemption
// does not help.
func (a *attempt) refuse(why string) {
	left := map[string]bool{} // nodes to which pods of the gang are no longer nominated
	for i, item := range a.items {
		d := &a.out[i]
		if d.node != "" || d.message == "" {
			a.s.forget(item.Pod, *d)
			*d = a.refusal(why)
			d.events = a.events
		}
		d.group = a.message(why)
		if a.waits {
			d.nominate, d.events = a.nominated[i], d.events|scheduling.PodRemoved
			d.local = len(a.s.gangs.awaited[a.gang.key]) > 0
		}
		left[a.nominate(i, d.nominate)] = true
		a.s.park(item, d)
	}
	for node := range left {
		a.s.vacated(node)
	}
}

// refusal returns the decision about a pod that fits, or that was not tried, if the gang does not fit.
// why says what preemption does about it.
func (a *attempt) refusal(why string) decision {
	if a.gang.group == nil {
		return a.s.refusal(reasonGangFits)
	}
	message := a.message(why)
	return decision{message: message,
		reject: &scheduling.Status{Code: scheduling.Unschedulable, Plugin: podGroupPlugin, Reasons: []string{message}}}
}

// message says why the PodGroup of the gang is not scheduled. It returns "" if the gang has none.
func (a *attempt) message(why string) string {
	if a.gang.group == nil || why == "" {
		return a.short
	}
	return a.short + ", pod group preemption: " + why
}

// nominate nominates the pod with index i to a node, or removes its nomination if node is "". It
// returns the node to which the pod is no longer nominated, or "".
func (a *attempt) nominate(i int, node string) (left string) {
	c, err := a.s.kinds.of(a.profile, a.items[i])
	if err != nil {
		return ""
	}
	return a.s.nominateTo(c.pod, node)
}
