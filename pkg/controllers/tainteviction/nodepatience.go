// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// evictAt returns the time at which a pod must be deleted from a node with these taints. The result
// leaves is false if the pod may stay. The function since returns the time at which a taint was
// added.
func evictAt(pod *v1.Pod, taints []v1.Taint, since func(*v1.Taint) time.Time) (at time.Time, leaves bool) {
	placed, first := placedAt(pod), deadline{}
	for i := range taints {
		t := &taints[i]
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		limit, forever := nodePatience(t, pod.Spec.Tolerations)
		if forever {
			continue
		}
		begun := since(t)
		if placed.After(begun) {
			begun = placed
		}
		first.add(begun.Add(limit))
	}
	return first.at, first.set
}

// placedAt returns the time at which a pod was bound to its node, or of its creation if that is
// unknown.
func placedAt(pod *v1.Pod) time.Time {
	if c := controller.Condition(pod, v1.PodScheduled); c != nil && c.Status == v1.ConditionTrue &&
		!c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// nodePatience returns how long a pod tolerates a taint: the shortest time of the tolerations that
// match, or 0 if none matches. forever is true if some match and none of these has a time limit.
func nodePatience(t *v1.Taint, tolerations []v1.Toleration) (limit time.Duration, forever bool) {
	tolerated, limited := false, false
	for i := range tolerations {
		tol := &tolerations[i]
		if !tol.ToleratesTaint(klog.Background(), t, false) {
			continue
		}
		tolerated = true
		if tol.TolerationSeconds == nil {
			continue
		}
		if d := limitOf(*tol.TolerationSeconds); !limited || d < limit {
			limit, limited = d, true
		}
	}
	return limit, tolerated && !limited
}

// sightings records the times at which this process first saw NoExecute taints that contain no
// time. It is safe for concurrent use.
type sightings struct {
	mu     sync.Mutex
	byNode map[string]map[taintID]time.Time
}

type taintID struct{ key, value string }

func newSightings() *sightings { return &sightings{byNode: map[string]map[taintID]time.Time{}} }

// record records the present taints of a node, and drops taints that the node does not have any
// more.
func (s *sightings) record(n *v1.Node, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.byNode[n.Name], map[taintID]time.Time{}
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute || t.TimeAdded != nil {
			continue
		}
		id := taintID{t.Key, t.Value}
		after[id] = now
		if at, there := before[id]; there {
			after[id] = at
		}
	}
	delete(s.byNode, n.Name)
	if len(after) > 0 {
		s.byNode[n.Name] = after
	}
}

func (s *sightings) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNode, node)
}

// since returns the time at which a taint was added to a node. If the taint contains no time, it is
// the time at which this process first saw it, or now.
func (s *sightings) since(node string, t *v1.Taint, now time.Time) time.Time {
	if t.TimeAdded != nil {
		return t.TimeAdded.Time
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, there := s.byNode[node][taintID{t.Key, t.Value}]; there {
		return at
	}
	return now
}
