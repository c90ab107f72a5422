// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// Plugin name and reasons in the status of pods of a gang. A gang is a set of pods that are placed
// all at once or not at all.
const (
	gangPlugin     = "Gang"
	reasonGangSize = "the annotation " + v1alpha1.AnnGangSize + " is not a number from 1 to 8192"
	reasonGangFits = "the pods of the gang do not fit all at once"
)

// gangName returns the gang (a set of pods that are placed all at once or not at all) that the
// annotation of a pod names. It returns "" if the pod belongs to no gang.
func gangName(pod *v1.Pod) string { return pod.Annotations[v1alpha1.AnnGang] }

// gangSize returns how many pods of the gang must fit at once, or 0 if the annotation is missing or
// invalid.
func gangSize(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnGangSize])
	if err != nil || n < 1 || n > v1alpha1.MaxGang {
		return 0
	}
	return n
}

// gangs tracks the gangs (sets of pods that are placed all at once or not at all) that already have
// a pod on a node (begun). Further pods of these gangs are placed one by one, so that a
// replacement, or a pod that was not bound because of a crash, need not wait for a whole gang.
type gangs struct {
	begun   map[string]map[types.UID]struct{}
	binding map[string]bool // gangs that are being bound, by gang key
	// awaited has, for each gang, the victims of its preemption that have not left their nodes yet.
	awaited map[string]map[types.UID]struct{}
}

func newGangs() *gangs {
	return &gangs{begun: map[string]map[types.UID]struct{}{}, binding: map[string]bool{},
		awaited: map[string]map[types.UID]struct{}{}}
}

// gangKey identifies the gang of a pod by namespace, profile and name. It returns "" for a pod
// without a gang.
func gangKey(pod *v1.Pod) string {
	if gangName(pod) == "" {
		return ""
	}
	return pod.Namespace + "/" + pod.Spec.SchedulerName + "/" + gangName(pod)
}

func (g *gangs) set(pod *v1.Pod, on bool) {
	if gangName(pod) == "" {
		return
	}
	key := gangKey(pod)
	if on && g.begun[key] == nil {
		g.begun[key] = map[types.UID]struct{}{}
	}
	if on {
		g.begun[key][pod.UID] = struct{}{}
		return
	}
	if delete(g.begun[key], pod.UID); len(g.begun[key]) == 0 {
		delete(g.begun, key)
	}
}

// left records that a victim has left its node or will not be evicted after all. It returns the
// gangs that were waiting only for this victim.
func (g *gangs) left(uid types.UID) (ready map[string]bool) {
	for key, awaited := range g.awaited {
		if _, ok := awaited[uid]; !ok {
			continue
		}
		if delete(awaited, uid); len(awaited) == 0 {
			delete(g.awaited, key)
			if ready == nil {
				ready = map[string]bool{}
			}
			ready[key] = true
		}
	}
	return ready
}

// stage says how a pod is to be placed: on its own, or together with the other pods of its gang.
type stage int8

const (
	alone    stage = iota // placed on its own
	together              // placed all at once with the other pods of its gang
	underWay              // not placed yet, because its gang is being bound
)

func (s *Scheduler) stage(pod *v1.Pod) stage {
	if gangName(pod) == "" {
		return alone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := gangKey(pod)
	switch {
	case s.gangs.binding[key]:
		return underWay
	case len(s.gangs.begun[key]) > 0:
		return alone
	}
	return together
}

// scheduleGang decides about all pods of a gang at once. If fewer pods than the gang's size can get
// a node, no pod gets one.
func (s *Scheduler) scheduleGang(ctx context.Context, p *profile.Profile, item *queue.Item, start time.Time) {
	size := gangSize(item.Pod)
	if size == 0 {
		s.mu.Lock()
		d := s.refusal(reasonGangSize)
		s.park(item, &d)
		s.mu.Unlock()
		s.conclude(ctx, p, item, d, nil, start)
		return
	}
	items, complete := s.queue.Gang(item, size)
	if !complete {
		s.queue.Await(item, 0) // too few pods of the gang are in the queue; this pod is tried with the next one
		return
	}
	decisions := s.decideGang(p, items, size, func() { s.scheduleBefore(ctx, items[0]) })
	var placed []*placement
	algorithm := s.cfg.Clock.Since(start).Seconds()
	for i, it := range items {
		s.metrics.algorithm.Observe(algorithm)
		if decisions[i].node == "" {
			s.conclude(ctx, p, it, decisions[i], nil, start)
			continue
		}
		placed = append(placed, &placement{it, decisions[i]})
	}
	if len(placed) > 0 {
		s.running.Go(func() { s.bindGang(ctx, p, placed, start) })
	}
}

// scheduleBefore schedules the pods that have entered the queue since item was popped and that come
// before item in the queue's order.
func (s *Scheduler) scheduleBefore(ctx context.Context, item *queue.Item) {
	for other := s.queue.PopBefore(item); other != nil; other = s.queue.PopBefore(item) {
		s.schedule(ctx, other)
	}
}

// refusal returns a decision that rejects a pod of a gang for the given reason. The caller holds
// s.mu.
func (s *Scheduler) refusal(reason string) decision {
	d := decision{reject: &scheduling.Status{Code: scheduling.Unresolvable, Plugin: gangPlugin, Reasons: []string{reason}}}
	d.message = fitMessage(len(s.view.Nodes()), d.reject, nil, "")
	return d
}

// forget reverses assume: it removes the pod from its node, and releases its volumes and devices.
// The caller holds s.mu.
func (s *Scheduler) forget(pod *v1.Pod, d decision) {
	if d.node == "" {
		return
	}
	s.view.reserved.release(d.volumes)
	s.view.devices.release(d.claims)
	s.view.Forget(pod.UID)
	if node, _, placed := s.view.Placed(pod.UID); !placed || node == "" {
		s.gangs.set(pod, false)
	}
}

// placement is a pod with the decision that gives it a node.
type placement struct {
	item *queue.Item
	decision
}

// errGang is the error of the pods of a gang that are not bound because another pod of the gang
// cannot be bound.
var errGang = errors.New("another pod of the gang cannot be bound")

// bindGang prepares volumes and devices of all pods of a gang, and then binds them in one request.
func (s *Scheduler) bindGang(ctx context.Context, p *profile.Profile, placed []*placement, start time.Time) {
	s.metrics.binding().Add(float64(len(placed)))
	failed := s.prepareGang(ctx, p, placed)
	all := make([]*binding, len(placed))
	for i, m := range placed {
		all[i] = &binding{profile: p.Name, pod: m.item.Pod, node: m.node, done: func(err error, eventWritten bool) {
			if err != nil && len(m.claims) > 0 {
				s.unreserve(ctx, m.item.Pod, m.decision, err)
			}
			s.finish(ctx, p, m.item, m.decision, start, err, eventWritten)
		}}
	}
	switch {
	case len(failed) > 0:
		for i, b := range all {
			err := failed[i]
			if err == nil {
				err = errGang
			}
			b.done(err, false)
		}
	case !s.binder.bindGang(ctx, p.Name, all):
		s.binder.bindEach(ctx, all)
	}
	s.mu.Lock()
	delete(s.gangs.binding, gangKey(placed[0].item.Pod))
	s.mu.Unlock()
	s.queue.Happened(scheduling.PodAdded) // wakes pods of the gang that waited until the binding ended
}

// prepareGang prepares volumes and devices of all pods of a gang. It returns the errors by index in
// placed.
func (s *Scheduler) prepareGang(ctx context.Context, p *profile.Profile, placed []*placement) map[int]error {
	var mu sync.Mutex
	failed := map[int]error{}
	var workers sync.WaitGroup
	for i, m := range placed {
		if m.volumes.empty() && len(m.claims) == 0 {
			continue
		}
		workers.Go(func() {
			if err := s.prepare(ctx, p, m.item.Pod, m.decision); err != nil {
				mu.Lock()
				failed[i] = fmt.Errorf("gang %s: %w", gangName(m.item.Pod), err)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return failed
}
