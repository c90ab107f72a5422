// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "time"

const (
	// maxHold is the time after which an attempt to place a gang pauses and releases the
	// scheduler's lock. Event handlers, and pods that come before the gang in the queue, wait for
	// the lock about that long.
	maxHold = 50 * time.Millisecond
	// maxAttempts is how many attempts are made to place a gang. An attempt starts over if nodes or
	// pods changed during a pause. The last attempt makes no pauses.
	maxAttempts = 4
)

// breaks has the state of an attempt's pauses. During a pause all changes that the attempt made to
// nodes and pods are undone, so that other pods are not rejected because of pods that may get no
// node.
type breaks struct {
	yield     func()    // called in each pause; nil if the attempt makes no pauses
	since     time.Time // end of the last pause
	placed    []int     // indexes of the pods that have a node, in the order of placement
	lifted    []lifted  // units of lower rank that were taken off their nodes to make room
	overtaken bool      // the attempt could not continue after a pause
}

// breakIfDue pauses the attempt if it has held the lock too long. It returns false if the attempt
// cannot continue because nodes or pods changed during the pause; all changes of the attempt stay
// undone then.
func (a *attempt) breakIfDue() bool {
	if a.yield == nil || a.s.cfg.Clock.Since(a.since) < a.s.hold {
		return true
	}
	a.suspend(len(a.lifted), len(a.placed))
	a.s.unlocked(a.yield)
	a.overtaken = !a.resume()
	a.since = a.s.cfg.Clock.Now()
	return !a.overtaken
}

// unlocked releases s.mu, calls f, and locks s.mu again.
func (s *Scheduler) unlocked(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
}

// suspend undoes changes of the attempt: it takes placed pods off their nodes and puts victims back on
// theirs. The arguments are the numbers of victims and of placed pods, from the first one.
func (a *attempt) suspend(victims, pods int) {
	for _, i := range a.placed[:pods] {
		a.s.forget(a.items[i].Pod, a.out[i])
		a.nominate(i, a.nominated[i])
	}
	for i := range a.lifted[:victims] {
		if l := &a.lifted[i]; l.off {
			l.putBack()
		}
	}
}

// resume makes the changes again that suspend undid. If that is not possible, it leaves everything
// undone and returns false.
func (a *attempt) resume() bool {
	for i := range a.lifted {
		if l := &a.lifted[i]; l.off && !a.liftAgain(l) {
			a.suspend(i, 0)
			return false
		}
	}
	for n, i := range a.placed {
		if !a.placeAgain(i) {
			a.suspend(len(a.lifted), n)
			return false
		}
	}
	return true
}

func (a *attempt) liftAgain(l *lifted) bool {
	v := a.s.view
	for m := range l.members() {
		if node, _, known := v.Placed(m.pod.UID); !known || node != m.node.Name || v.evicting.has(m.pod.UID) {
			return false
		}
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
