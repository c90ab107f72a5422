// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// Plugin names and reasons in the status of pods of a gang.
const (
	gangPlugin     = "Gang"
	podGroupPlugin = "GangScheduling" // Kubernetes' name of the plugin that rejects pods of PodGroups
	reasonGangSize = "the annotation " + v1alpha1.AnnGangSize + " is not a number from 1 to 8192"
	reasonGangFits = "the pods of the gang do not fit all at once"
)

// gangs tracks the state of gangs (sets of pods that are placed all at once or not at all), by gang
// key.
type gangs struct {
	groups
	placed  map[string]map[types.UID]*v1.Pod // pods that are on nodes
	binding map[string]bool                  // gangs that are being bound
	// awaited has, for each gang, the victims of its preemption that have not left their nodes yet.
	awaited map[string]map[types.UID]struct{}
}

func newGangs(g groups) *gangs {
	return &gangs{groups: g, placed: map[string]map[types.UID]*v1.Pod{}, binding: map[string]bool{},
		awaited: map[string]map[types.UID]struct{}{}}
}

// gangOf returns the gang of a pod.
func (g *gangs) gangOf(pod *v1.Pod) gang {
	return g.of(pod, func(key string) int { return len(g.placed[key]) })
}

// set records that a pod is on a node or, if on is false, that it is on none.
func (g *gangs) set(pod *v1.Pod, on bool) {
	key := g.key(pod)
	if key == "" {
		return
	}
	if on && g.placed[key] == nil {
		g.placed[key] = map[types.UID]*v1.Pod{}
	}
	if on {
		g.placed[key][pod.UID] = pod
		return
	}
	if delete(g.placed[key], pod.UID); len(g.placed[key]) == 0 {
		delete(g.placed, key)
	}
}

// check returns an error if pods of a gang contradict each other, or the pods of the gang that are on
// nodes, or their PodGroup.
func (g *gangs) check(of *gang, items ...*queue.Item) error {
	if of.group == nil {
		return nil
	}
	var pods []*v1.Pod
	for _, item := range items {
		pods = append(pods, item.Pod)
	}
	return of.check(slices.AppendSeq(pods, maps.Values(g.placed[of.key])))
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
	alone     stage = iota // placed on its own
	together               // placed all at once with the other pods of its gang
	underWay               // not placed yet, because its gang is being bound
	groupless              // not placed yet, because its PodGroup does not exist
	malformed              // not placed, because its gang has no valid size
)

// stage returns how a pod is to be placed, and its gang. It returns an error if the pod contradicts its
// PodGroup.
func (s *Scheduler) stage(item *queue.Item) (stage, gang, error) {
	if s.gangs.key(item.Pod) == "" {
		return alone, gang{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gangs.gangOf(item.Pod)
	switch {
	case g.unknown:
		return groupless, g, nil
	case s.gangs.binding[g.key]:
		return underWay, g, nil
	case g.need() > 0:
		return together, g, nil
	case g.group == nil && g.placed == 0:
		return malformed, g, nil
	}
	return alone, g, s.gangs.check(&g, item)
}

// refuseMalformed rejects a pod whose annotations give no valid size of its gang.
func (s *Scheduler) refuseMalformed(ctx context.Context, p *profile.Profile, item *queue.Item, start time.Time) {
	s.mu.Lock()
	d := s.refusal(reasonGangSize)
	s.park(item, &d)
	s.mu.Unlock()
	s.conclude(ctx, p, item, d, nil, start)
}

// scheduleGang decides about all pods of a gang at once. If fewer pods than the gang needs can get a
// node, no pod gets one.
func (s *Scheduler) scheduleGang(ctx context.Context, p *profile.Profile, item *queue.Item, g gang, start time.Time) {
	items, complete := s.queue.Gang(item, g.need())
	if !complete {
		s.queue.Await(item, 0) // too few pods of the gang are in the queue; this pod is tried with the next one
		return
	}
	if err := s.checkGang(&g, items); err != nil {
		for _, it := range items {
			s.conclude(ctx, p, it, decision{}, err, start)
		}
		return
	}
	decisions := s.decideGang(p, items, g, func() { s.scheduleBefore(ctx, items[0]) })
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

// checkGang is gangs.check for a caller that does not hold s.mu.
func (s *Scheduler) checkGang(g *gang, items []*queue.Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gangs.check(g, items...)
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
	delete(s.gangs.binding, s.gangs.key(placed[0].item.Pod))
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
				failed[i] = fmt.Errorf("gang %s: %w", s.gangs.name(m.item.Pod), err)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return failed
}
