// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "time"

const (
	// maxHold is about how long an attempt for a gang locks the cell. Event handlers, and pods that
	// come before the gang in the queue, wait for the lock that long.
	maxHold = 50 * time.Millisecond
	// maxAttempts is how often an attempt is started again after a break in which the cell changed.
	// The last one makes no breaks.
	maxAttempts = 4
)

// breaks are the pauses of an attempt. During a pause everything that the attempt has done to the
// cell is reversed, so that other pods are not rejected because of pods that may get no node.
type breaks struct {
	yield     func()    // called in each break; nil if there are none
	since     time.Time // end of the last break
	placed    []int     // indexes of the pods that have a node, in the order of placement
	lifted    []lifted  // pods of lower rank that were taken off their nodes to make room
	overtaken bool      // what had been found was no longer possible after a break
}

// breakIfDue makes a break if it is time for one. It returns false if the attempt cannot continue
// because the cell changed; then all its changes stay reversed.
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

// unlocked calls f while the lock that the caller holds is released.
func (s *Scheduler) unlocked(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
}

// suspend puts the given number of victims back on their nodes, and takes the given number of
// placed pods off their nodes.
func (a *attempt) suspend(victims, pods int) {
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

// resume makes the changes again that suspend reversed. If that is not possible, it changes nothing
// and returns false.
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
