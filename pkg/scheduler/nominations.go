// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// nominations has the pending pods that are nominated to a node. The scheduler evicts pods from
// that node to make room for them.
type nominations struct {
	byNode map[string]map[types.UID]*scheduling.Pod
	node   map[types.UID]string
	// repelling has the nominated pods with required pod anti-affinity.
	repelling map[types.UID]struct{}
	// changed is called with the name of a node when the pods nominated to it change.
	changed func(node string)
}

func newNominations() *nominations {
	return &nominations{changed: func(string) {}, byNode: map[string]map[types.UID]*scheduling.Pod{},
		node: map[types.UID]string{}, repelling: map[types.UID]struct{}{}}
}

// set nominates a pod to a node, or removes its nomination if node is "".
func (m *nominations) set(pod *scheduling.Pod, node string) {
	if known := m.node[pod.UID]; known == node && known != "" {
		m.byNode[node][pod.UID] = pod
		return
	}
	m.remove(pod.UID)
	if node == "" {
		return
	}
	if m.byNode[node] == nil {
		m.byNode[node] = map[types.UID]*scheduling.Pod{}
	}
	m.byNode[node][pod.UID] = pod
	m.node[pod.UID] = node
	if len(pod.Group.Affinity.RequiredAnti) > 0 {
		m.repelling[pod.UID] = struct{}{}
	}
	m.changed(node)
}

func (m *nominations) remove(uid types.UID) {
	node, ok := m.node[uid]
	if !ok {
		return
	}
	delete(m.node, uid)
	delete(m.repelling, uid)
	if delete(m.byNode[node], uid); len(m.byNode[node]) == 0 {
		delete(m.byNode, node)
	}
	m.changed(node)
}

// on returns the pods nominated to a node for which the given pod must leave room: the other pods
// of the same or higher priority.
func (m *nominations) on(node string, pod *scheduling.Pod) []*scheduling.Pod {
	var out []*scheduling.Pod
	for uid, p := range m.byNode[node] {
		if uid != pod.UID && p.Priority() >= pod.Priority() {
			out = append(out, p)
		}
	}
	return out
}

// below returns the pods nominated to a node whose priority is lower than the given priority.
func (m *nominations) below(node string, priority int32) []*scheduling.Pod {
	var out []*scheduling.Pod
	for _, p := range m.byNode[node] {
		if p.Priority() < priority {
			out = append(out, p)
		}
	}
	return out
}
