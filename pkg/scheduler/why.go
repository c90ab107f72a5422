// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// Why explains why a pod is on its node, or why it has none.
type Why struct {
	Pod  string `json:"pod"`
	Node string `json:"node,omitempty"` // the pod's node
	// Gated has the reasons why scheduling gates keep the pod from being scheduled.
	Gated []string `json:"gated,omitempty"`
	// Ended is the reason and message with which the pod was evicted, from its status.
	Ended string `json:"ended,omitempty"`
	// Reasons has the objections of plugins, each with the number of nodes that it excludes.
	Reasons []Reason `json:"reasons,omitempty"`
	// Changes has changes to the pod. Each would let the pod fit a node. Changes that open more
	// nodes come first.
	Changes []Change `json:"changes,omitempty"`
	// Fits is the number of nodes that the pod fits. A pod that is on a node is evaluated as if it
	// had no node.
	Fits int `json:"fits"`
	Explanation
}

// Reason is a plugin's reason to reject nodes, with the number of nodes that it rejects.
type Reason struct {
	Plugin string `json:"plugin"`
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
}

// Change is a change to the pod that would let it fit.
type Change struct {
	What  string `json:"what"`
	Nodes int    `json:"nodes"`          // number of nodes that the pod would fit
	Node  string `json:"node,omitempty"` // one of these nodes
}

// asker computes explanations of pods. It has its own evaluator, so that it does not evict results
// that the scheduler has cached. It locks the scheduler for one evaluation at a time.
type asker struct {
	lock      sync.Locker
	view      *view
	profile   *profile.Profile
	nominated *nominations
	rounds    int // number of evaluations so far
}

// why explains a pod. At most limit nodes are listed individually, or all nodes if limit is 0.
func (a *asker) why(pod *v1.Pod, limit int) (*Why, error) {
	w := &Why{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Ended: ended(pod)}
	if st := a.profile.Gate(pod); st != nil {
		w.Gated = st.Reasons
	}
	free := pod.DeepCopy() // a copy of the pod without its node and nomination
	free.Spec.NodeName, free.Status.NominatedNodeName = "", ""
	if err := a.explain(w, free); err != nil {
		return nil, err
	}
	if w.Fits == 0 && w.Node == "" {
		w.Changes = a.changes(free, w)
	}
	if limit > 0 && len(w.Nodes) > limit {
		w.Nodes = w.Nodes[:limit]
	}
	return w, nil
}

func (a *asker) explain(w *Why, pod *v1.Pod) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	var err error
	a.view.Without(pod.UID, func() {
		var e *evaluation
		if e, err = newEvaluator().evaluate(a.view, a.profile, a.view.NewPod(pod), a.nominated); err != nil {
			return
		}
		x := e.explain()
		w.Explanation = *x
		if e.reject != nil {
			w.Reasons = []Reason{{e.reject.Plugin, e.reject.Reasons[0], len(a.view.Nodes())}}
			return
		}
		e.addOthers(&w.Explanation)
		for st, nodes := range e.objections() {
			for _, r := range st.Reasons {
				w.Reasons = append(w.Reasons, Reason{st.Plugin, r, nodes})
			}
		}
		for i := range x.Nodes {
			if x.Nodes[i].Objection == nil {
				w.Fits++
			}
		}
	})
	slices.SortFunc(w.Reasons,
		func(x, y Reason) int { return cmp.Or(-cmp.Compare(x.Nodes, y.Nodes), cmp.Compare(x.Reason, y.Reason)) })
	return err
}

// ended returns the reason and message of an eviction from a pod's status, or "".
func ended(pod *v1.Pod) string {
	if c := condition(pod, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// fits returns the nodes that all filters accept for a pod.
func (a *asker) fits(pod *v1.Pod) (nodes []*scheduling.Node) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.rounds++
	a.view.Without(pod.UID, func() {
		p := a.view.NewPod(pod)
		var filters []scheduling.Filter
		for _, plugins := range [][]profile.Filter{a.profile.NodeFilters, a.profile.CellFilters} {
			for _, plugin := range plugins {
				f, st := plugin.Compile(a.view, p)
				if st != nil {
					return
				}
				if !empty(&f.Filter) {
					filters = append(filters, f.Filter)
				}
			}
		}
		for _, n := range a.view.Nodes() {
			if first(filters, n) == nil {
				nodes = append(nodes, n)
			}
		}
	})
	return nodes
}

// Why explains why a pod is on its node or has none. The pod need not exist.
func (m *Model) Why(pod *v1.Pod, limit int) (*Why, error) {
	a := &asker{lock: &sync.Mutex{}, view: m.view, profile: m.profile, nominated: m.nominated}
	return a.why(pod, limit)
}

// Why explains a pod. It returns ErrUnknown if the scheduler's caches do not have the pod, or if no
// profile of this scheduler is responsible for it.
func (s *Scheduler) Why(namespace, name string, limit int) (*Why, error) {
	pod := s.sources.pods.Get(types.NamespacedName{Namespace: namespace, Name: name})
	if pod == nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrUnknown)
	}
	p := s.cfg.Profiles.Profiles[pod.Spec.SchedulerName]
	if p == nil {
		return nil, fmt.Errorf("pod %s/%s: of scheduler %q: %w", namespace, name, pod.Spec.SchedulerName, ErrUnknown)
	}
	a := &asker{lock: &s.mu, view: s.view, profile: p, nominated: s.nominated}
	return a.why(pod, limit)
}
