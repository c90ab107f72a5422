// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// evictions has the pods that the scheduler is evicting. Each time a pod leaves, the scheduler checks
// for every waiting pod that has preempted others whether its victims have left. So the priorities are
// kept by node.
type evictions struct {
	node       map[types.UID]string
	priorities map[string]map[types.UID]int32 // keys are nodes
}

func newEvictions() *evictions {
	return &evictions{node: map[types.UID]string{}, priorities: map[string]map[types.UID]int32{}}
}

// add adds a pod that is on the node.
func (e *evictions) add(pod *scheduling.Pod, node string) {
	e.remove(pod.UID)
	e.node[pod.UID] = node
	if e.priorities[node] == nil {
		e.priorities[node] = map[types.UID]int32{}
	}
	e.priorities[node][pod.UID] = pod.Priority()
}

// remove removes a pod that has left its node, or whose eviction is canceled.
func (e *evictions) remove(pod types.UID) {
	node, known := e.node[pod]
	if !known {
		return
	}
	delete(e.node, pod)
	if delete(e.priorities[node], pod); len(e.priorities[node]) == 0 {
		delete(e.priorities, node)
	}
}

func (e *evictions) has(pod types.UID) bool {
	_, known := e.node[pod]
	return known
}

// below reports whether a pod with a lower priority is being evicted from the node.
func (e *evictions) below(node string, priority int32) bool {
	for _, p := range e.priorities[node] {
		if p < priority {
			return true
		}
	}
	return false
}
