// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// clearing makes room for the pods of a gang that found none. It takes victims
// off their nodes, chosen as for a pod that comes alone, and places the pods of
// the gang where that makes room. In the end all are where they were, and the
// victims are told to go only if that is enough for the whole gang.
type clearing struct {
	*attempt
	budgets []budget   // less what the victims so far have taken of them
	refused []decision // what was said of the pods before
}

// lifted is a victim that is off its node for the time being.
type lifted struct {
	pod  *scheduling.Pod
	node string
	by   int // the pod of the gang that it makes room for
	off  bool
	back func() // has it be where it was
}

func (l *lifted) lift(v *view) { l.back, l.off = v.Lift(l.pod.UID), true }

// clear looks for pods below the gang's rank without which it fits. It returns
// true when there are enough, and they are to go.
func (a *attempt) clear() bool {
	listed, err := a.s.sources.allBudgets()
	if err != nil {
		return false // nobody is preempted by who does not know them
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
		return false // it fits, beside those that were to go
	}
	c.expect()
	return true
}

// placeRest places pods that have no node, as many as the gang lacks.
func (c *clearing) placeRest() {
	for i := range c.items {
		if c.waits || c.fits >= c.size || !c.breathe() {
			return
		}
		if c.out[i].node == "" && !c.placeCleared(i) && c.possible(i+1) < c.size {
			return
		}
	}
}

// possible is how many pods may get a node when those before i have been looked at.
func (c *clearing) possible(i int) int {
	n := c.fits
	for _, d := range c.out[i:] {
		if d.node == "" {
			n++
		}
	}
	return n
}

// placeCleared places a pod, where others make room if need be.
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

// makeRoom takes the victims of a pod off the best node for that.
func (c *clearing) makeRoom(i int, e *evaluation) (*scheduling.Node, *evaluation) {
	e.rank = c.rank
	if ineligible(c.s.view, e) != "" {
		c.waits = true // what was begun is not over
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

// spare brings those back that the gang fits beside after all: first those whose
// eviction overdraws a disruption budget, then the most important. It leaves that
// where other nodes have a say in who fits.
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
				if !c.breathe() {
					return
				}
				c.tryBack(l, here[l.node])
			}
		}
	}
}

// tryBack brings a victim back if the pods of the gang on its node fit beside it.
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

// bringBack has the victims from one on be where they were.
func (c *clearing) bringBack(from int) {
	for i := from; i < len(c.lifted); i++ {
		if c.lifted[i].off {
			c.lifted[i].back()
		}
	}
	c.lifted = c.lifted[:from]
}

// expect has the pods of the gang wait, each nominated to the node that is cleared
// for it, until the victims are gone.
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
		c.nominate(i, node)
	}
	for i, item := range c.items {
		c.s.park(item, &c.out[i])
	}
}
