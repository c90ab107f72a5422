// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

func (s *Scheduler) handlers() handlers {
	pods := newPodTimes(s.metrics.handling)
	return handlers{
		podSet: func(old, pod *v1.Pod) {
			start := s.cfg.Clock.Now()
			s.podSet(old, pod)
			pods.set(old, pod).Observe(s.cfg.Clock.Since(start).Seconds())
		},
		podGone: func(pod *v1.Pod) {
			start := s.cfg.Clock.Now()
			s.podGone(pod)
			pods.gone(pod).Observe(s.cfg.Clock.Since(start).Seconds())
		},
		nodes:     s.nodeHandler(),
		claims:    s.timedHandler("resource.k8s.io/ResourceClaim", s.claimHandler()),
		podGroups: s.timedHandler("scheduling.k8s.io/PodGroup", s.podGroupHandler()),
		timed:     s.timedHandler,
		changed: func(e scheduling.Event) {
			if e&scheduling.VolumesChanged != 0 {
				s.volumesMoved.raise()
			}
			s.queue.Happened(e)
		},
	}
}

// timed returns a function that calls an event handler and observes how long the call takes.
func (s *Scheduler) timed(event string) func(handle func()) {
	took := s.metrics.handling(event)
	return func(handle func()) {
		start := s.cfg.Clock.Now()
		handle()
		took().Observe(s.cfg.Clock.Since(start).Seconds())
	}
}

// podTimes has one histogram for each kind of change of a pod. It shows how long handling such a
// change takes.
type podTimes struct {
	pendingAdd, pendingUpdate, pendingDelete, placedAdd, placedUpdate, placedDelete func() prometheus.Observer
}

func newPodTimes(of func(event string) func() prometheus.Observer) *podTimes {
	return &podTimes{
		of("UnscheduledPodAdd"), of("UnscheduledPodUpdate"), of("UnscheduledPodDelete"),
		of("AssignedPodAdd"), of("AssignedPodUpdate"), of("AssignedPodDelete"),
	}
}

// set returns the histogram for a pod that was added or updated. old is nil for a new pod.
func (t *podTimes) set(old, pod *v1.Pod) prometheus.Observer {
	switch placed := pod.Spec.NodeName != ""; {
	case placed && (old == nil || old.Spec.NodeName == ""):
		return t.placedAdd()
	case placed:
		return t.placedUpdate()
	case old == nil:
		return t.pendingAdd()
	}
	return t.pendingUpdate()
}

// gone returns the histogram for a pod that was deleted.
func (t *podTimes) gone(pod *v1.Pod) prometheus.Observer {
	if pod.Spec.NodeName != "" {
		return t.placedDelete()
	}
	return t.pendingDelete()
}

func (s *Scheduler) claimHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.claimSet(o.(*resourcev1.ResourceClaim), false) },
		UpdateFunc: func(_, o any) { s.claimSet(o.(*resourcev1.ResourceClaim), false) },
		DeleteFunc: func(o any) {
			if c := last[*resourcev1.ResourceClaim](o); c != nil {
				s.claimSet(c, true)
			}
		},
	}
}

// podGroupHandler returns the handler of changes of PodGroups. It lets the pods of a PodGroup try again
// if the PodGroup was created or its minCount was lowered.
func (s *Scheduler) podGroupHandler() cache.ResourceEventHandler {
	wake := func(g *schedulingv1beta1.PodGroup) { s.queue.Wake(podGroupKey(g.Namespace, g.Name)) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { wake(o.(*schedulingv1beta1.PodGroup)) },
		UpdateFunc: func(old, o any) {
			was, is := old.(*schedulingv1beta1.PodGroup), o.(*schedulingv1beta1.PodGroup)
			if was.UID != is.UID || minCount(is) < minCount(was) {
				wake(is)
			}
		},
	}
}

// timedHandler returns a handler that calls h for changes of a resource and observes how long each
// call takes.
func (s *Scheduler) timedHandler(resource string, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	add, update, remove := s.timed(resource+"Add"), s.timed(resource+"Update"), s.timed(resource+"Delete")
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, first bool) { add(func() { h.OnAdd(o, first) }) },
		UpdateFunc: func(old, o any) { update(func() { h.OnUpdate(old, o) }) },
		DeleteFunc: func(o any) { remove(func() { h.OnDelete(o) }) },
	}
}

// nodeHandler returns the handler of node changes. As in Kubernetes, the duration of an update is
// observed once for each kind of change that it contains.
func (s *Scheduler) nodeHandler() cache.ResourceEventHandler {
	add, remove := s.timed("NodeAdd"), s.timed("NodeDelete")
	kinds := []scheduling.Event{scheduling.NodeLabelsChanged, scheduling.NodeTaintsChanged,
		scheduling.NodeResourcesGrown, scheduling.NodeFeaturesChanged}
	took := map[scheduling.Event]func() prometheus.Observer{}
	for _, e := range kinds {
		took[e] = s.metrics.handling(queue.EventLabel(e))
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { add(func() { s.nodeSet(o.(*v1.Node)) }) },
		UpdateFunc: func(_, o any) {
			start := s.cfg.Clock.Now()
			events := s.nodeSet(o.(*v1.Node))
			for _, e := range kinds {
				if events&e != 0 {
					took[e]().Observe(s.cfg.Clock.Since(start).Seconds())
				}
			}
		},
		DeleteFunc: func(o any) {
			if node := last[*v1.Node](o); node != nil {
				remove(func() { s.nodeGone(node.Name) })
			}
		},
	}
}

// claimSet handles an added, updated or deleted resource claim. The argument gone is true if the
// claim was deleted.
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
			events |= scheduling.PodRemoved // the pod now requests less, which frees room as the removal of a pod does
		}
		s.gangs.set(pod, true)
		left := s.nominated.node[pod.UID]
		s.nominated.remove(pod.UID)
		if left != pod.Spec.NodeName {
			s.vacated(left)
		}
		s.mu.Unlock()
		s.queue.Happened(events)
	case s.cfg.Profiles.Profiles[pod.Spec.SchedulerName] != nil:
		s.podPending(old, pod)
	}
}

func (s *Scheduler) podPending(old, pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, placed := s.view.Placed(pod.UID); placed {
		// The scheduler is binding the pod, which leaves the queue afterwards. This late event must
		// not make the scheduler try the pod again.
		s.queue.Update(pod)
		return
	}
	left := s.nominate(old, pod)
	s.queue.Set(pod)
	s.vacated(left, pod.UID)
}

// nominate records the nominated node from the status of a pending pod. It returns the node to which
// the pod is no longer nominated, or "". The caller holds s.mu.
func (s *Scheduler) nominate(old, pod *v1.Pod) (left string) {
	node, known := pod.Status.NominatedNodeName, s.nominated.node[pod.UID]
	switch {
	case node == "" && known == "":
		return ""
	case node == "" && old != nil && old.Status.NominatedNodeName == "":
		node = known // the update is older than the nomination, which the scheduler is about to write
	}
	s.nominated.set(s.view.NewPod(pod), node)
	if known == node {
		return ""
	}
	return known
}

// vacated lets waiting pods try again after a pod is no longer nominated to a node, because they had
// to leave room for that pod. The pods in lost have lost that nomination to another pod or by an
// update, and are tried again too. If node is "", vacated does nothing. The caller holds s.mu.
func (s *Scheduler) vacated(node string, lost ...types.UID) {
	if node == "" {
		return
	}
	helps := s.roomOn(node, nil)
	s.queue.HappenedFor(scheduling.PodRemoved, func(item *queue.Item) bool {
		return helps == nil || slices.Contains(lost, item.Pod.UID) || helps(item)
	})
}

// wakeDisplaced lets the pods that lost their nomination by a decision try again, and the pods that
// had to leave room for them. The caller holds s.mu, and has put the pod of the decision back into the
// queue.
func (s *Scheduler) wakeDisplaced(d *decision) {
	if len(d.displaced) == 0 {
		return
	}
	lost := make([]types.UID, len(d.displaced))
	for i, other := range d.displaced {
		lost[i] = other.UID
	}
	s.vacated(d.nominate, lost...)
}

// placedEvents returns the events for waiting pods that follow from the change of a pod on a node.
func placedEvents(old, pod *v1.Pod) scheduling.Event {
	switch {
	case old == nil || old.Spec.NodeName == "" || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil):
		return scheduling.PodAdded
	case old.Generation != pod.Generation || !sameLabels(old.Labels, pod.Labels):
		// The pod may request less than before, which frees room as the removal of a pod does.
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
	left := s.nominated.node[pod.UID]
	s.nominated.remove(pod.UID)
	s.gangs.set(pod, false)
	s.view.evicting.remove(pod.UID)
	ready := s.gangs.left(pod.UID)
	node, _, known := s.view.Placed(pod.UID)
	if !known {
		s.vacated(left)
		return
	}
	s.view.RemovePod(pod.UID)
	if len(pod.Spec.Volumes) > 0 {
		s.volumesMoved.raise() // goroutines that wait for volumes check whether their pod still exists
	}
	s.queue.HappenedFor(scheduling.PodRemoved, s.roomOn(node, ready))
}

// room says how a waiting pod may get onto a node that a pod has left.
type room int8

const (
	noRoom     room = iota // not at all
	byEviction             // only if pods of lower priority are evicted
	atOnce                 // as the node is now
)

// roomOn returns a function that reports whether a waiting pod may be scheduled after a pod left
// the node: the pod fits the node, it would fit without pods of lower priority and may preempt
// them, or its gang is in ready. Only one pod of each class (pods that are evaluated alike) and
// priority is evaluated. The caller holds s.mu.
func (s *Scheduler) roomOn(node string, ready map[string]bool) func(*queue.Item) bool {
	n := s.view.NodeByName(node)
	if n == nil {
		return nil
	}
	type kind struct {
		class    string
		priority int32
	}
	said := map[kind]room{}
	return func(item *queue.Item) bool {
		if key := s.gangs.key(item.Pod); ready[key] || len(s.gangs.awaited[key]) > 0 {
			return ready[key]
		}
		c, ok := item.Memo.(*compiled)
		if !ok || s.nominated.node[item.Pod.UID] == node {
			return true
		}
		k := kind{c.class, c.pod.Priority()}
		r, known := said[k]
		if !known {
			r = s.roomFor(item, c, n)
			said[k] = r
		}
		if r == byEviction {
			// A pod whose own victims have not left yet must not choose more victims.
			return mayPreempt(item.Pod) && !s.view.victimsLeaving(s.nominated.node[item.Pod.UID], k.priority)
		}
		return r == atOnce
	}
}

// roomFor says how the waiting pod with the compiled form c may get onto a node.
func (s *Scheduler) roomFor(item *queue.Item, c *compiled, n *scheduling.Node) room {
	p := s.cfg.Profiles.Profiles[item.Pod.Spec.SchedulerName]
	if p == nil {
		return atOnce
	}
	e := &evaluation{view: s.view, profile: p, pod: c.pod, nominated: s.nominated, rank: c.pod.Priority()}
	e.class = s.evaluator.classes.get(s.view, p, c.pod, c.class)
	if e.class.reject != nil {
		return noRoom
	}
	st := e.filter(n)
	switch {
	case st == nil:
		return atOnce
	case p.Preemption == nil || st.Code == scheduling.Unresolvable:
		return noRoom
	}
	t, _, st := e.withoutLower(n)
	t.end()
	if st != nil {
		return noRoom
	}
	return byEviction
}

// nodeSet stores a node, and returns the events for waiting pods that follow from the change.
func (s *Scheduler) nodeSet(node *v1.Node) scheduling.Event {
	s.mu.Lock()
	events := s.view.SetNode(node)
	s.mu.Unlock()
	s.queue.Happened(events)
	return events
}

func (s *Scheduler) nodeGone(name string) {
	s.mu.Lock()
	s.view.RemoveNode(name)
	s.mu.Unlock()
	s.volumesMoved.raise() // goroutines that wait for volumes check whether their node still exists
	// The node may have been the last of its topology domain, and that changes what spread
	// constraints allow.
	s.queue.Happened(scheduling.NodeLabelsChanged)
}
