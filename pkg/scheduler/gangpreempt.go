// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// clearing makes room for the pods of a gang that found no node. It takes victims, chosen as for a
// single pod, off their nodes in the scheduler's memory, and places pods of the gang there. The
// victims are evicted only if that lets the whole gang fit. At the end all victims are put back,
// because they count on their nodes until they have terminated.
type clearing struct {
	*attempt
	budgets []budget   // disruption budgets, less the victims chosen so far
	refused []decision // the decisions of placeAll, before any eviction
}

// lifted is a unit of victims of preemption (what can only be evicted as a whole) that was taken off its
// nodes in the scheduler's memory (see type clearing).
type lifted struct {
	unit
	by   int // index of the gang's pod that gets the victims' room
	off  bool
	back []func() // put the pods back on their nodes
}

func (l *lifted) lift(v *view) {
	l.off, l.back = true, l.back[:0]
	for m := range l.members() {
		l.back = append(l.back, v.Lift(m.pod.UID))
	}
}

// putBack reverses lift, but leaves off as it is.
func (l *lifted) putBack() {
	for _, back := range l.back {
		back()
	}
}

// Kubernetes' messages about the preemption of PodGroups.
const (
	whyNever   = "not eligible due to preemptionPolicy=Never."
	whyOngoing = "ongoing preemption on nominated nodes"
	whyNone    = "No preemption victims found for incoming preemptor"
)

// clear looks for pods with a lower priority than the gang's rank whose eviction lets the gang fit.
// If it found them, it nominates the gang's pods to the nodes. Otherwise it returns the reason.
func (a *attempt) clear() (cleared bool, why string) {
	switch {
	case a.waits:
		return false, whyOngoing
	case a.profile.Preemption == nil:
		return false, ""
	case !a.preempts:
		return false, whyNever
	}
	listed, err := a.s.sources.allBudgets()
	if err != nil {
		return false, err.Error() // without disruption budgets no victims can be chosen
	}
	c := &clearing{attempt: a, budgets: compileBudgets(listed), refused: slices.Clone(a.out)}
	c.placeRest()
	if a.overtaken {
		return false, ""
	}
	if a.fits < a.size {
		why = c.whyNot()
		c.bringBack(0)
		return false, why
	}
	c.spare(compileBudgets(listed))
	if a.overtaken || !slices.ContainsFunc(c.lifted, func(l lifted) bool { return l.off }) {
		return false, "" // no eviction is needed after all, or the attempt could not continue
	}
	c.expect()
	return true, ""
}

// whyNot returns the reason why the gang does not fit even with evictions.
func (c *clearing) whyNot() string {
	switch {
	case c.waits:
		return whyOngoing
	case len(c.lifted) == 0:
		return whyNone
	}
	return c.gang.shortage(c.fits, 0)
}

// placeRest places pods that have no node yet, with evictions, until the gang has enough.
func (c *clearing) placeRest() {
	for i := range c.items {
		if c.waits || c.fits >= c.size || !c.breakIfDue() {
			return
		}
		if c.out[i].node == "" && !c.placeCleared(i) && c.possible(i+1) < c.size {
			return
		}
	}
}

// possible returns the largest number of pods that can still get a node, if the pods before index i
// have been tried.
func (c *clearing) possible(i int) int {
	n := c.fits
	for _, d := range c.out[i:] {
		if d.node == "" {
			n++
		}
	}
	return n
}

// placeCleared places the pod with index i, with evictions if necessary. It returns false if the
// pod found no node.
func (c *clearing) placeCleared(i int) bool {
	e, err := c.s.evaluateItem(c.profile, c.items[i])
	if err != nil {
		return false
	}
	n := e.best(c.s.cfg.Rand)
	if n == nil {
		n, e = c.makeRoom(i, e)
	}
	return n != nil && c.assume(i, e, n)
}

// makeRoom chooses the best node to clear for the pod with index i, and takes the victims off it.
// It returns nil if there is no such node.
func (c *clearing) makeRoom(i int, e *evaluation) (*scheduling.Node, *evaluation) {
	e.rank = c.rank
	c.s.metrics.preemptions.Inc()
	if ineligible(c.s.view, e) != "" {
		c.waits = true // pods evicted by an earlier attempt have not left their nodes yet
		return nil, nil
	}
	found, _ := e.preempt(c.budgets, c.s.cfg.Rand)
	if len(found) == 0 {
		return nil, nil
	}
	best, before := slices.MinFunc(found, compareCandidates), len(c.lifted)
	for _, v := range best.victims {
		node, _, ok := c.s.view.Placed(v.UID)
		if !ok {
			continue // lifted with the unit of an earlier victim
		}
		l := lifted{unit: c.s.view.unitOf(v, c.s.view.NodeByName(node)), by: i}
		l.lift(c.s.view)
		c.lifted = append(c.lifted, l)
	}
	e, n, err := c.s.evaluateOn(c.profile, c.items[i], best.node)
	if err != nil || n == nil {
		c.bringBack(before)
		return nil, nil
	}
	for _, v := range best.victims {
		charge(c.budgets, v.Pod)
	}
	return n, e
}

// spare puts those victims back that need not be evicted: first victims whose eviction violates a
// disruption budget, then the victims of highest priority. It does nothing if a plugin's result for
// a node may depend on other nodes.
func (c *clearing) spare(budgets []budget) {
	if !c.apart {
		return
	}
	slices.SortStableFunc(c.lifted, func(x, y lifted) int { return compareUnits(x.unit, y.unit) })
	here := map[string][]int{}
	for i := range c.out {
		here[c.out[i].node] = append(here[c.out[i].node], i)
	}
	for _, violating := range []bool{true, false} {
		left := slices.Clone(budgets)
		for i := range c.lifted {
			l := &c.lifted[i]
			if (l.charge(left) > 0) == violating && !l.repels() {
				if !c.breakIfDue() {
					return
				}
				c.tryBack(l, here)
			}
		}
	}
}

// repels reports whether a pod of the unit keeps pods away from other nodes than its own.
func (u *unit) repels() bool {
	for m := range u.members() {
		if len(m.pod.Group.Affinity.RequiredAnti) > 0 {
			return true
		}
	}
	return false
}

// tryBack puts a unit of victims back on its nodes, if the gang's pods there (here has their indexes, by
// node) still fit then.
func (c *clearing) tryBack(l *lifted, here map[string][]int) {
	if !l.off {
		return
	}
	l.putBack()
	for m := range l.members() {
		for _, i := range here[m.node.Name] {
			if !c.fitsWhereItIs(i) {
				l.lift(c.s.view)
				return
			}
		}
	}
	l.off = false
}

func (c *clearing) fitsWhereItIs(i int) (fits bool) {
	c.s.view.Without(c.items[i].Pod.UID, func() {
		_, n, err := c.s.evaluateOn(c.profile, c.items[i], c.out[i].node)
		fits = err == nil && n != nil
	})
	return fits
}

// bringBack puts the victims in lifted whose index is not lower than the given one back on their
// nodes, and removes them from lifted.
func (c *clearing) bringBack(from int) {
	for i := from; i < len(c.lifted); i++ {
		if c.lifted[i].off {
			c.lifted[i].putBack()
		}
	}
	c.lifted = c.lifted[:from]
}

// expect ends a successful clearing: it nominates the pods of the gang to the cleared nodes, and
// lets them wait until the victims have left.
func (c *clearing) expect() {
	victims, awaited := make([][]*scheduling.Pod, len(c.items)), map[types.UID]struct{}{}
	for i := range c.lifted {
		if l := &c.lifted[i]; l.off {
			for m := range l.members() {
				victims[l.by] = append(victims[l.by], m.pod)
				awaited[m.pod.UID] = struct{}{}
			}
		}
	}
	c.bringBack(0)
	c.s.gangs.awaited[c.gang.key] = awaited
	why := fmt.Sprintf("found a placement for podgroup, preempting %d victims", len(awaited))
	left := map[string]bool{} // nodes to which pods of the gang are no longer nominated
	for i, item := range c.items {
		node, d := c.out[i].node, c.refused[i]
		c.s.forget(item.Pod, c.out[i])
		if d.node != "" || d.message == "" {
			d = c.refusal(why)
		}
		d.group = c.message(why)
		d.events, d.local = c.events|scheduling.PodRemoved, true
		if node != "" {
			d.preemptor = c.gang.group
			c.s.clear(c.rank, candidate{node: node, victims: victims[i]}, &d)
		}
		c.out[i] = d
		left[c.nominate(i, node)] = true
	}
	for i, item := range c.items {
		c.s.park(item, &c.out[i])
	}
	for node := range left {
		c.s.vacated(node)
	}
	for i := range c.out {
		c.s.wakeDisplaced(&c.out[i])
	}
}
