// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// trial evaluates a node as if other pods were on it. It changes a copy of the node. Filters that
// count pods get a call of Adjust for each change, and end reverses these calls.
type trial struct {
	e    *evaluation
	node *scheduling.Node
	log  []adjustment
}

type adjustment struct {
	node *scheduling.Node
	pod  *scheduling.Pod
	n    int
}

func (e *evaluation) trial(n *scheduling.Node) *trial {
	c := *n
	c.Requested.Scalar, c.NonZero.Scalar = maps.Clone(n.Requested.Scalar), maps.Clone(n.NonZero.Scalar)
	c.Pods, c.Ports = maps.Clone(n.Pods), maps.Clone(n.Ports)
	return &trial{e: e, node: &c}
}

// adjust adds a pod to the node (d is 1) or removes it from the node (d is -1).
func (t *trial) adjust(pod *scheduling.Pod, d int) {
	cell.Adjust(t.node, pod, d)
	t.record(t.node, pod, d)
}

// adjustElsewhere adds a pod to another node than the evaluated one, or removes it from there. Only
// filters that count pods of other nodes see the change.
func (t *trial) adjustElsewhere(m member, d int) { t.record(m.node, m.pod, d) }

func (t *trial) record(n *scheduling.Node, pod *scheduling.Pod, d int) {
	t.notify(n, pod, d)
	t.log = append(t.log, adjustment{n, pod, d})
}

func (t *trial) notify(n *scheduling.Node, pod *scheduling.Pod, d int) {
	for i := range t.e.cell {
		if adjust := t.e.cell[i].Adjust; adjust != nil {
			adjust(n, pod, d)
		}
	}
}

func (t *trial) fits() *scheduling.Status {
	if st := first(t.e.class.filters, t.node); st != nil {
		return st
	}
	return first(t.e.cell, t.node)
}

func (t *trial) end() {
	for i := len(t.log) - 1; i >= 0; i-- {
		t.notify(t.log[i].node, t.log[i].pod, -t.log[i].n)
	}
}
