// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "time"

const (
	// maxHold is about how long a look at a gang keeps the cell from others: those who
	// tell what has changed in it, and pods that come before the gang.
	maxHold = 50 * time.Millisecond
	// maxAttempts bounds how often a look at a gang is begun anew since it was
	// overtaken. The last one has no breaks.
	maxAttempts = 4
)

// breaks are those that an attempt makes. For their time all that it has done to the
// cell is taken back, so that nobody is turned away for the sake of pods that may get
// no node after all.
type breaks struct {
	yield     func()    // called in each; nil: there are none
	since     time.Time // when the last one ended
	placed    []int     // pods that have a node, by place in items, in the order in which they got it
	lifted    []lifted  // victims
	overtaken bool      // after a break what had been found did not hold any more
}

// breathe makes a break if it is time for one. It returns false when the attempt was
// overtaken; it has left nothing then.
func (a *attempt) breathe() bool {
	if a.yield == nil || a.s.cfg.Clock.Since(a.since) < a.s.hold {
		return true
	}
	a.takeBack(len(a.lifted), len(a.placed))
	a.s.unlocked(a.yield)
	a.overtaken = !a.repeat()
	a.since = a.s.cfg.Clock.Now()
	return !a.overtaken
}

// unlocked calls f without the lock that is held.
func (s *Scheduler) unlocked(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
}

// takeBack has the first of the victims be where they were, and the first of the
// pods that have a node wait as before.
func (a *attempt) takeBack(victims, pods int) {
	for _, i := range a.placed[:pods] {
		a.s.forget(a.items[i].Pod, a.out[i])
		a.nominate(i, a.nominated[i])
	}
	for i := range a.lifted[:victims] {
		if l := &a.lifted[i]; l.off {
			l.back()
		}
	}
}

// repeat does what takeBack took back. If that cannot be, it does nothing and returns false.
func (a *attempt) repeat() bool {
	for i := range a.lifted {
		if l := &a.lifted[i]; l.off && !a.liftAgain(l) {
			a.takeBack(i, 0)
			return false
		}
	}
	for n, i := range a.placed {
		if !a.placeAgain(i) {
			a.takeBack(len(a.lifted), n)
			return false
		}
	}
	return true
}

func (a *attempt) liftAgain(l *lifted) bool {
	v := a.s.view
	if node, _, known := v.Placed(l.pod.UID); !known || node != l.node || v.evicting[l.pod.UID] {
		return false
	}
	l.lift(v)
	return true
}

func (a *attempt) placeAgain(i int) bool {
	e, n, err := a.s.evaluateOn(a.profile, a.items[i], a.out[i].node)
	if err != nil || n == nil {
		return false
	}
	d, err := a.s.assume(e, n)
	if err == nil {
		a.out[i] = d
	}
	return err == nil
}
