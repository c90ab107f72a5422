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
	pod *scheduling.Pod
	n   int
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
	t.notify(pod, d)
	t.log = append(t.log, adjustment{pod, d})
}

func (t *trial) notify(pod *scheduling.Pod, d int) {
	for i := range t.e.cell {
		if adjust := t.e.cell[i].Adjust; adjust != nil {
			adjust(t.node, pod, d)
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
		t.notify(t.log[i].pod, -t.log[i].n)
	}
}
