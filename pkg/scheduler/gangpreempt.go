// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
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

// lifted is a victim of preemption that was taken off its node in the scheduler's memory (see type
// clearing).
type lifted struct {
	pod  *scheduling.Pod
	node string
	by   int // index of the gang's pod that gets the victim's room
	off  bool
	back func() // puts the pod back on its node
}

func (l *lifted) lift(v *view) { l.back, l.off = v.Lift(l.pod.UID), true }

// clear looks for pods with a lower priority than the gang's rank whose eviction lets the gang fit.
// It returns true if it found them, and nominates the gang's pods to the nodes.
func (a *attempt) clear() bool {
	listed, err := a.s.sources.allBudgets()
	if err != nil {
		return false // without disruption budgets no victims can be chosen
	}
	c := &clearing{attempt: a, budgets: compileBudgets(listed), refused: slices.Clone(a.out)}
	c.placeRest()
	if a.overtaken {
		return false
	}
	if a.fits < a.size {
		c.bringBack(0)
		return false
	}
	c.spare(compileBudgets(listed))
	if a.overtaken || !slices.ContainsFunc(c.lifted, func(l lifted) bool { return l.off }) {
		return false // no eviction is needed after all, or the attempt could not continue
	}
	c.expect()
	return true
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
		l := lifted{pod: v, node: best.node, by: i}
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
	slices.SortStableFunc(c.lifted, func(x, y lifted) int { return moreImportant(x.pod, y.pod) })
	here := map[string][]int{}
	for i := range c.out {
		here[c.out[i].node] = append(here[c.out[i].node], i)
	}
	for _, violating := range []bool{true, false} {
		left := slices.Clone(budgets)
		for i := range c.lifted {
			l := &c.lifted[i]
			if charge(left, l.pod.Pod) == violating && len(l.pod.Group.Affinity.RequiredAnti) == 0 {
				if !c.breakIfDue() {
					return
				}
				c.tryBack(l, here[l.node])
			}
		}
	}
}

// tryBack puts a victim back on its node, if the gang's pods on that node (indexes members) still
// fit then.
func (c *clearing) tryBack(l *lifted, members []int) {
	if !l.off {
		return
	}
	l.back()
	for _, i := range members {
		if !c.fitsWhereItIs(i) {
			l.lift(c.s.view)
			return
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
			c.lifted[i].back()
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
			victims[l.by] = append(victims[l.by], l.pod)
			awaited[l.pod.UID] = struct{}{}
		}
	}
	c.bringBack(0)
	c.s.gangs.awaited[gangKey(c.items[0].Pod)] = awaited
	left := map[string]bool{} // nodes to which pods of the gang are no longer nominated
	for i, item := range c.items {
		node, d := c.out[i].node, c.refused[i]
		c.s.forget(item.Pod, c.out[i])
		if d.node != "" || d.message == "" {
			d = c.s.refusal(reasonGangFits)
		}
		d.events, d.local = c.events|scheduling.PodRemoved, true
		if node != "" {
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
