// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/scheduling"
)

// Messages, as in Kubernetes, for nodes on which preemption does not help.
const (
	reasonNotHelpful = "Preemption is not helpful for scheduling"
	reasonNoVictims  = "No preemption victims found for incoming pod"
)

var (
	notHelpful = &scheduling.Status{Reasons: []string{reasonNotHelpful}}
	noVictims  = &scheduling.Status{Reasons: []string{reasonNoVictims}}
)

// candidate is a node that the pod fits as soon as the victims (the pods to evict) have left it.
type candidate struct {
	node       string
	victims    []*scheduling.Pod // most important first
	violations int               // number of victims whose eviction violates a disruption budget
}

// ineligible returns the reason why the pod must not preempt other pods, or "" if it may.
func ineligible(view *view, e *evaluation) string {
	pod := e.pod
	if !mayPreempt(pod.Pod) {
		return "not eligible due to preemptionPolicy=Never."
	}
	n := view.NodeByName(pod.Status.NominatedNodeName)
	if n == nil || e.unresolvable(n) {
		return ""
	}
	if view.victimsLeaving(n.Name, pod.Priority()) {
		return "not eligible due to a terminating pod on the nominated node."
	}
	return ""
}

// victimsLeaving reports whether the node still has a pod that is being evicted for a pod of the
// given priority. It returns false if the node does not exist.
func (v *view) victimsLeaving(node string, priority int32) bool {
	n := v.NodeByName(node)
	if n == nil {
		return false
	}
	if v.evicting.below(node, priority) {
		return true
	}
	// Other pods may have been evicted by another scheduler, or by this one before it was restarted.
	for _, p := range n.Pods {
		if p.DeletionTimestamp != nil && p.Priority() < priority && preempted(p.Pod) {
			return true
		}
	}
	return false
}

// preempted reports whether a pod is terminating because the scheduler evicted it.
func preempted(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler {
			return true
		}
	}
	return false
}

// mayPreempt reports whether a pod's preemptionPolicy lets it preempt other pods.
func mayPreempt(pod *v1.Pod) bool { return preemptionPolicy(pod) != v1.PreemptNever }

// preemptionPolicy returns a pod's preemptionPolicy, or the default.
func preemptionPolicy(pod *v1.Pod) v1.PreemptionPolicy {
	if pod.Spec.PreemptionPolicy == nil {
		return v1.PreemptLowerPriority
	}
	return *pod.Spec.PreemptionPolicy
}

func (e *evaluation) unresolvable(n *scheduling.Node) bool {
	if e.reject != nil {
		return e.reject.Code != scheduling.Unschedulable
	}
	st := e.statuses[n.Index]
	return st != nil && st.Code == scheduling.Unresolvable
}

// preempt finds nodes that the pod fits if pods with a priority below e.rank are evicted. The
// result is valid until the next evaluation. If there is no such node, preempt returns the reason.
func (e *evaluation) preempt(budgets []budget, r *rand.Rand) ([]candidate, string) {
	if why := ineligible(e.view, e); why != "" {
		return nil, "preemption: " + why
	}
	nodes, b := e.view.Nodes(), e.buffers
	statuses, potential, found := slices.Grow(b.unhelpful[:0], len(nodes))[:len(nodes)],
		slices.Grow(b.potential[:0], len(nodes)), b.found[:0]
	defer func() { b.unhelpful, b.potential, b.found = statuses, potential, found }()
	clear(statuses)
	for i, n := range nodes {
		if e.unresolvable(n) {
			statuses[i] = notHelpful
			continue
		}
		potential = append(potential, n)
	}
	want := min(max(len(nodes)*e.profile.Preemption.MinPercent/100, e.profile.Preemption.MinAbsolute), len(potential))
	if len(potential) > 0 {
		// Start at a random node, so that preemption does not always hit the same nodes.
		start := r.IntN(len(potential))
		for i := range potential {
			n := potential[(start+i)%len(potential)]
			c, st := e.keptVictims(n, budgets)
			if st != nil {
				statuses[n.Index] = st
				continue
			}
			if found = append(found, c); len(found) >= want {
				break
			}
		}
	}
	if len(found) == 0 {
		return nil, "preemption: " + fitMessage(len(nodes), nil, tallyUp(statuses), "")
	}
	return found, ""
}

// victimsMessage returns the last part of the message in the condition of a pod that has victims. As in
// Kubernetes, it replaces the messages of other plugins at the extension point PostFilter.
func victimsMessage(d *decision) string {
	return fmt.Sprintf("preemption: found a potential placement for pod on node %s, preempting %d victims",
		d.nominate, len(d.victims))
}

// plan is a cached result of the function victims for a node, for pods of one class (pods that are
// evaluated alike) and priority.
type plan struct {
	generation uint64 // generation of the node when the plan was made
	candidate  candidate
	status     *scheduling.Status
}

// keptVictims returns the result of victims for a node, from the cache of the pod's class (the pods
// that are evaluated alike) if possible. It does not use the cache if the result may depend on
// other nodes or on disruption budgets, or if the pod is nominated to the node.
func (e *evaluation) keptVictims(n *scheduling.Node, budgets []budget) (candidate, *scheduling.Status) {
	if len(e.cell) > 0 || len(budgets) > 0 || e.nominated.node[e.pod.UID] == n.Name || e.view.hasGroups(n) {
		return e.victims(n, budgets)
	}
	plans := e.class.plansOf(e.rank)
	p := &plans[n.Index]
	if p.generation != n.Generation {
		p.generation = n.Generation
		p.candidate, p.status = e.victims(n, nil)
	}
	return p.candidate, p.status
}

// victims finds the pods that must leave n so that the pod fits. It removes all units (what can only be
// evicted as a whole) of lower priority than e.rank, and then puts back each unit that fits together with
// the new pod. Units whose eviction violates a disruption budget are put back first, and then the most
// important units.
func (e *evaluation) victims(n *scheduling.Node, budgets []budget) (candidate, *scheduling.Status) {
	t, lower, st := e.withoutLower(n)
	defer t.end()
	if st != nil {
		return candidate{}, st
	}
	slices.SortFunc(lower, compareUnits)
	violating, others := splitByBudgets(lower, budgets)
	c := candidate{node: n.Name}
	var chosen []unit
	for i, u := range append(violating, others...) {
		t.adjustUnit(&u, 1)
		if t.fits() == nil {
			continue
		}
		t.adjustUnit(&u, -1)
		chosen = append(chosen, u)
		if i < len(violating) {
			c.violations += u.violations()
		}
	}
	slices.SortFunc(chosen, compareUnits)
	c.victims = make([]*scheduling.Pod, 0, len(chosen))
	for i := range chosen {
		c.victims = append(c.victims, chosen[i].pod)
		for _, m := range chosen[i].others() {
			c.victims = append(c.victims, m.pod)
		}
	}
	return c, nil
}

// withoutLower removes the units of lower priority than e.rank from n in a trial, which the caller
// must end, and returns them. The status says why the pod does not fit even then, or why there is
// nothing to remove. It is nil if the pod fits.
func (e *evaluation) withoutLower(n *scheduling.Node) (t *trial, lower []unit, st *scheduling.Status) {
	t = e.trial(n)
	lower = e.view.unitsBelow(n, e.rank)
	if len(lower) == 0 {
		return t, nil, noVictims
	}
	for i := range lower {
		t.adjustUnit(&lower[i], -1)
	}
	for _, p := range e.nominated.on(n.Name, e.pod) {
		t.adjust(p, 1)
	}
	return t, lower, t.fits()
}

// compareStart sorts pods by start time. Pods that have not started come last.
func compareStart(a, b *v1.Pod) int {
	sa, sb := a.Status.StartTime, b.Status.StartTime
	switch {
	case sa == nil && sb == nil:
		return 0
	case sa == nil:
		return 1
	case sb == nil:
		return -1
	}
	return sa.Compare(sb.Time)
}

// budget is a PodDisruptionBudget with the number of evictions that it still allows.
type budget struct {
	of       *policyv1.PodDisruptionBudget
	selector labels.Selector
	left     int32
}

func compileBudgets(of []*policyv1.PodDisruptionBudget) []budget {
	out := make([]budget, len(of))
	for i, b := range of {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			selector = labels.Nothing()
		}
		out[i] = budget{b, selector, b.Status.DisruptionsAllowed}
	}
	return out
}

// charge counts the eviction of a pod in all budgets that cover it. It reports whether the eviction
// violates one of them.
func charge(budgets []budget, pod *v1.Pod) (overdrawn bool) {
	for i := range budgets {
		b := &budgets[i]
		if !b.covers(pod) {
			continue
		}
		if b.left--; b.left < 0 {
			overdrawn = true
		}
	}
	return overdrawn
}

// covers reports whether an eviction of pod counts against the budget. It does not if the budget's
// status already lists the pod as evicted. An empty selector covers every pod of the namespace.
func (b *budget) covers(pod *v1.Pod) bool {
	if b.of.Namespace != pod.Namespace || !b.selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	_, counted := b.of.Status.DisruptedPods[pod.Name]
	return !counted
}

// compareCandidates orders candidates as Kubernetes does. The best candidate has the fewest
// violations of budgets, then the lowest priority of its most important victim, the lowest sum of
// priorities, the fewest victims, and the latest start time of the earliest victim of highest
// priority.
func compareCandidates(a, b candidate) int {
	if d := cmp.Compare(a.violations, b.violations); d != 0 {
		return d
	}
	if d := cmp.Compare(highest(a), highest(b)); d != 0 {
		return d
	}
	if d := cmp.Compare(sum(a), sum(b)); d != 0 {
		return d
	}
	if d := cmp.Compare(len(a.victims), len(b.victims)); d != 0 {
		return d
	}
	return -compareStart(earliest(a), earliest(b))
}

func highest(c candidate) int64 {
	if len(c.victims) == 0 {
		return math.MinInt64 / 2
	}
	return int64(c.victims[0].Priority())
}

// sum returns the sum of the victims' priorities. A constant makes each priority positive, because
// otherwise a victim with negative priority would lower the sum.
func sum(c candidate) int64 {
	var s int64
	for _, p := range c.victims {
		s += int64(p.Priority()) + math.MaxInt32 + 1
	}
	return s
}

// earliest returns the victim (pod to evict) that started first among the victims with the highest
// priority.
func earliest(c candidate) *v1.Pod {
	if len(c.victims) == 0 {
		return &v1.Pod{}
	}
	first := c.victims[0]
	for _, p := range c.victims {
		if p.Priority() == first.Priority() && compareStart(p.Pod, first.Pod) < 0 {
			first = p
		}
	}
	return first.Pod
}
