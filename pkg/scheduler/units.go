// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// unit is what can only be evicted as a whole: a pod, or all pods of a PodGroup whose disruptionMode is
// all.
type unit struct {
	member
	group *groupUnit // nil if the pod is in no PodGroup
}

// groupUnit has what a unit needs only for a pod in a PodGroup.
type groupUnit struct {
	priority int32
	others   []member // the other pods of the unit, also those on other nodes
	// violations is the number of pods whose eviction violates a disruption budget.
	violations int
}

// member is a pod on a node.
type member struct {
	pod  *scheduling.Pod
	node *scheduling.Node
}

func (u *unit) priority() int32 {
	if u.group == nil {
		return u.pod.Priority()
	}
	return u.group.priority
}

// others returns the pods of the unit except its first one.
func (u *unit) others() []member {
	if u.group == nil {
		return nil
	}
	return u.group.others
}

// members returns all pods of the unit.
func (u *unit) members() iter.Seq[member] {
	return func(yield func(member) bool) {
		if !yield(u.member) {
			return
		}
		for _, m := range u.others() {
			if !yield(m) {
				return
			}
		}
	}
}

// unitsBelow returns the units that have a pod on node n and whose priority is lower than rank.
func (v *view) unitsBelow(n *scheduling.Node, rank int32) []unit {
	var out []unit
	var seen map[types.UID]bool // pods of units with several pods
	for _, p := range n.Pods {
		if seen[p.UID] {
			continue
		}
		u := v.unitOf(p, n)
		if u.priority() >= rank {
			continue
		}
		out = append(out, u)
		for _, m := range u.others() {
			if seen == nil {
				seen = map[types.UID]bool{}
			}
			seen[m.pod.UID] = true
		}
	}
	return out
}

// unitOf returns the unit of a pod on a node.
func (v *view) unitOf(p *scheduling.Pod, n *scheduling.Node) unit {
	u := unit{member: member{p, n}}
	group := v.gangs.podGroup(p.Pod)
	if group == nil {
		return u
	}
	u.group = &groupUnit{priority: groupPriority(group)}
	if !evictedWhole(group) {
		return u
	}
	for uid := range v.gangs.placed[v.gangs.key(p.Pod)] {
		name, _, _ := v.Placed(uid)
		if node := v.NodeByName(name); node != nil && uid != p.UID {
			u.group.others = append(u.group.others, member{node.Pods[string(uid)], node})
		}
	}
	return u
}

// hasGroups reports whether a pod on the node is in a PodGroup.
func (v *view) hasGroups(n *scheduling.Node) bool {
	if v.gangs.podGroups == nil {
		return false
	}
	for _, p := range n.Pods {
		if v.gangs.podGroupName(p.Pod) != "" {
			return true
		}
	}
	return false
}

// compareUnits sorts the more important unit first, as Kubernetes does: the unit of higher priority, then
// pods of PodGroups, then the unit with more pods, then the unit that started earlier.
func compareUnits(a, b unit) int {
	if d := cmp.Compare(b.priority(), a.priority()); d != 0 {
		return d
	}
	if a.group == nil && b.group == nil {
		return compareStart(a.pod.Pod, b.pod.Pod)
	}
	return cmp.Or(cmp.Compare(b.rank(), a.rank()), compareStart(a.earliest(), b.earliest()))
}

// rank is higher for the more important of two units with the same priority that start at the same time.
func (u *unit) rank() int {
	if u.group == nil {
		return 0
	}
	return 1 + len(u.group.others)
}

// earliest returns the pod of the unit that started first.
func (u *unit) earliest() *v1.Pod {
	first := u.pod.Pod
	for _, m := range u.others() {
		if compareStart(m.pod.Pod, first) < 0 {
			first = m.pod.Pod
		}
	}
	return first
}

// charge counts the eviction of a unit in the budgets, and returns how many of its pods violate one.
func (u *unit) charge(budgets []budget) (violations int) {
	for m := range u.members() {
		if charge(budgets, m.pod.Pod) {
			violations++
		}
	}
	return violations
}

// splitByBudgets separates the units whose eviction would violate a disruption budget from the other
// units, if all are evicted in the given order.
func splitByBudgets(units []unit, budgets []budget) (violating, others []unit) {
	if len(budgets) == 0 {
		return nil, units
	}
	left := slices.Clone(budgets)
	for _, u := range units {
		n := u.charge(left)
		if n == 0 {
			others = append(others, u)
			continue
		}
		if u.group != nil {
			u.group.violations = n
		}
		violating = append(violating, u)
	}
	return violating, others
}

// violations returns the number of pods whose eviction violates a disruption budget, for a unit that
// splitByBudgets returned as violating.
func (u *unit) violations() int {
	if u.group == nil {
		return 1
	}
	return u.group.violations
}

// adjustUnit adds the pods of a unit, whose first one is on the node, to their nodes (d is 1) or removes them
// (d is -1).
func (t *trial) adjustUnit(u *unit, d int) {
	t.adjust(u.pod, d)
	for _, m := range u.others() {
		if m.node.Index == t.node.Index {
			t.adjust(m.pod, d)
		} else {
			t.adjustElsewhere(m, d)
		}
	}
}
