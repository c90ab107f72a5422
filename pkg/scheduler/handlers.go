// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

func (s *Scheduler) handlers() handlers {
	return handlers{
		podSet: s.podSet, podGone: s.podGone,
		nodes: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.nodeSet(o.(*v1.Node)) },
			UpdateFunc: func(_, o any) { s.nodeSet(o.(*v1.Node)) },
			DeleteFunc: func(o any) {
				if node := last[*v1.Node](o); node != nil {
					s.nodeGone(node.Name)
				}
			},
		},
		claims: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.claimSet(o.(*resourcev1.ResourceClaim), false) },
			UpdateFunc: func(_, o any) { s.claimSet(o.(*resourcev1.ResourceClaim), false) },
			DeleteFunc: func(o any) {
				if c := last[*resourcev1.ResourceClaim](o); c != nil {
					s.claimSet(c, true)
				}
			},
		},
		changed: func(e scheduling.Event) {
			if e&scheduling.VolumesChanged != 0 {
				s.volumesMoved.raise()
			}
			s.queue.Happened(e)
		},
	}
}

// claimSet handles a resource claim. gone is true if it was deleted.
func (s *Scheduler) claimSet(c *resourcev1.ResourceClaim, gone bool) {
	s.mu.Lock()
	s.view.devices.observe(c, gone)
	s.mu.Unlock()
	s.devicesMoved.raise()
	s.queue.Happened(scheduling.DevicesChanged)
}

// last returns the last known state of a deleted object.
func last[T any](o any) T {
	if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = t.Obj
	}
	obj, _ := o.(T)
	return obj
}

func (s *Scheduler) podSet(old, pod *v1.Pod) {
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		s.podGone(pod)
	case pod.Spec.NodeName != "":
		s.queue.Delete(pod.UID)
		s.mu.Lock()
		events := placedEvents(old, pod)
		if s.view.SetPod(pod) {
			events |= scheduling.PodRemoved // the pod requests less than before, as if another pod was removed
		}
		s.gangs.set(pod, true)
		s.nominated.remove(pod.UID)
		s.mu.Unlock()
		s.queue.Happened(events)
	case s.cfg.Profiles.Profiles[pod.Spec.SchedulerName] != nil:
		s.podPending(pod)
	}
}

func (s *Scheduler) podPending(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, placed := s.view.Placed(pod.UID); placed {
		// The pod is being bound and leaves the queue afterwards. An event that arrives late must
		// not put it back.
		s.queue.Update(pod)
		return
	}
	s.nominate(pod)
	s.queue.Set(pod)
}

// nominate stores the nominated node in a pending pod's status. The caller holds s.mu.
func (s *Scheduler) nominate(pod *v1.Pod) {
	node := pod.Status.NominatedNodeName
	if known := s.nominated.node[pod.UID]; node == "" && known == "" {
		return
	}
	s.nominated.set(s.view.NewPod(pod), node)
}

// placedEvents returns what a change of a pod on a node can mean for waiting pods.
func placedEvents(old, pod *v1.Pod) scheduling.Event {
	switch {
	case old == nil || old.Spec.NodeName == "" || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil):
		return scheduling.PodAdded
	case old.Generation != pod.Generation || !sameLabels(old.Labels, pod.Labels):
		// The pod may request less than before, as if another pod was removed.
		return scheduling.PodAdded | scheduling.PodRemoved
	}
	return 0
}

func sameLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (s *Scheduler) podGone(pod *v1.Pod) {
	s.queue.Delete(pod.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nominated.remove(pod.UID)
	s.gangs.set(pod, false)
	delete(s.view.evicting, pod.UID)
	ready := s.gangs.left(pod.UID)
	node, _, known := s.view.Placed(pod.UID)
	if !known {
		return
	}
	s.view.RemovePod(pod.UID)
	if len(pod.Spec.Volumes) > 0 {
		s.volumesMoved.raise() // the goroutine that binds the pod may be waiting for volumes
	}
	s.queue.HappenedFor(scheduling.PodRemoved, s.roomOn(node, ready))
}

// roomOn returns a function that reports whether a waiting pod fits a node now, or belongs to a
// gang that can be tried. Pods that are alike are evaluated once. The caller holds s.mu.
func (s *Scheduler) roomOn(node string, ready map[string]bool) func(*queue.Item) bool {
	n := s.view.NodeByName(node)
	if n == nil {
		return nil
	}
	type kind struct {
		class    string
		priority int32
	}
	said := map[kind]bool{}
	return func(item *queue.Item) bool {
		if key := gangKey(item.Pod); ready[key] || len(s.gangs.awaited[key]) > 0 {
			return ready[key]
		}
		c, ok := item.Memo.(*compiled)
		if !ok || s.nominated.node[item.Pod.UID] == node {
			return true
		}
		k := kind{c.class, c.pod.Priority()}
		fits, known := said[k]
		if !known {
			fits = s.fits(item, c, n)
			said[k] = fits
		}
		return fits
	}
}

func (s *Scheduler) fits(item *queue.Item, c *compiled, n *scheduling.Node) bool {
	p := s.cfg.Profiles.Profiles[item.Pod.Spec.SchedulerName]
	if p == nil {
		return true
	}
	e := &evaluation{view: s.view, profile: p, pod: c.pod, nominated: s.nominated}
	e.class = s.evaluator.classes.get(s.view, p, c.pod, c.class)
	return e.class.reject == nil && e.filter(n) == nil
}

func (s *Scheduler) nodeSet(node *v1.Node) {
	s.mu.Lock()
	events := s.view.SetNode(node)
	s.mu.Unlock()
	s.queue.Happened(events)
}

func (s *Scheduler) nodeGone(name string) {
	s.mu.Lock()
	s.view.RemoveNode(name)
	s.mu.Unlock()
	s.volumesMoved.raise() // goroutines that bind pods to the node may be waiting
	// The last node of a domain may have been removed, which changes what spread constraints allow.
	s.queue.Happened(scheduling.NodeLabelsChanged)
}
