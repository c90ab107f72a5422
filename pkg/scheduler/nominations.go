// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/scheduling"
)

// nominations are the pending pods that nodes have been cleared for, by node.
type nominations map[string]map[types.UID]*scheduling.Pod

// set replaces where a pod is nominated; node "" takes the nomination back.
func (m nominations) set(pod *scheduling.Pod, node string) {
	m.remove(pod.UID)
	if node == "" {
		return
	}
	if m[node] == nil {
		m[node] = map[types.UID]*scheduling.Pod{}
	}
	m[node][pod.UID] = pod
}

func (m nominations) remove(uid types.UID) {
	for node, pods := range m {
		if _, ok := pods[uid]; !ok {
			continue
		}
		if delete(pods, uid); len(pods) == 0 {
			delete(m, node)
		}
		return
	}
}

// on are the pods nominated to a node that a pod must leave room for.
func (m nominations) on(node string, pod *scheduling.Pod) []*scheduling.Pod {
	var out []*scheduling.Pod
	for uid, p := range m[node] {
		if uid != pod.UID && p.Priority() >= pod.Priority() {
			out = append(out, p)
		}
	}
	return out
}

// below are the pods nominated to a node with less priority than pod has.
func (m nominations) below(node string, pod *scheduling.Pod) []*scheduling.Pod {
	var out []*scheduling.Pod
	for _, p := range m[node] {
		if p.Priority() < pod.Priority() {
			out = append(out, p)
		}
	}
	return out
}
