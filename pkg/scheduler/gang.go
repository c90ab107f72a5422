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

// What pods of a gang are told.
const (
	gangPlugin     = "Gang"
	reasonGangSize = "the annotation " + v1alpha1.AnnGangSize + " is not a number from 1 to 8192"
	reasonGangFits = "the pods of the gang do not fit all at once"
)

// gangName is the gang that a pod belongs to; "": none.
func gangName(pod *v1.Pod) string { return pod.Annotations[v1alpha1.AnnGang] }

// gangSize is how many pods of a gang must fit at once; 0: that is not said well.
func gangSize(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnGangSize])
	if err != nil || n < 1 || n > v1alpha1.MaxGang {
		return 0
	}
	return n
}

// gangs knows which gangs have begun: those with a pod on a node. The other pods
// of such a gang are placed one by one, so that one that was replaced, or that a
// crash has cut off, is not waited for in vain.
type gangs struct {
	begun   map[string]map[types.UID]struct{}
	binding map[string]bool // gangs whose bindings are under way
	// awaited are the pods that make room for a gang and are not gone yet.
	awaited map[string]map[types.UID]struct{}
}

func newGangs() *gangs {
	return &gangs{begun: map[string]map[types.UID]struct{}{}, binding: map[string]bool{}, awaited: map[string]map[types.UID]struct{}{}}
}

// gangKey names a gang among all: pods for another profile are another gang.
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

// left takes down that a pod is gone, or stays after all. It returns the gangs
// that waited for it last of all.
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

// stage is how far a pod's gang is.
type stage int8

const (
	alone    stage = iota // the pod is placed as any other
	together              // it is placed with its gang
	underWay              // its gang is being bound: it has to wait
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

// scheduleGang decides about all pods of a gang at once: as many as are asked for
// get a node, or none does.
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
		s.queue.Await(item, 0) // the next pod of the gang takes it along
		return
	}
	decisions := s.decideGang(p, items, size, func() { s.scheduleBefore(ctx, items[0]) })
	var placed []*placement
	for i, it := range items {
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

// scheduleBefore decides about the pods that come before an item by now.
func (s *Scheduler) scheduleBefore(ctx context.Context, item *queue.Item) {
	for other := s.queue.PopBefore(item); other != nil; other = s.queue.PopBefore(item) {
		s.schedule(ctx, other)
	}
}

// refusal is the decision that a pod gets no node, whichever. s.mu is held.
func (s *Scheduler) refusal(reason string) decision {
	d := decision{reject: &scheduling.Status{Code: scheduling.Unresolvable, Plugin: gangPlugin, Reasons: []string{reason}}}
	d.message = fitMessage(len(s.view.Nodes()), d.reject, nil, "")
	return d
}

// forget takes back what assume did. s.mu is held.
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

// placement is a pod with the node that was found for it.
type placement struct {
	item *queue.Item
	decision
}

// errGang says that a pod is not bound since another of its gang cannot be.
var errGang = errors.New("another pod of the gang cannot be bound")

// bindGang carries out the decisions about a gang: what is to be prepared for all
// of its pods, then all bindings in one request.
func (s *Scheduler) bindGang(ctx context.Context, p *profile.Profile, placed []*placement, start time.Time) {
	failed := s.prepareGang(ctx, p, placed)
	all := make([]*binding, len(placed))
	for i, m := range placed {
		all[i] = &binding{profile: p.Name, pod: m.item.Pod, node: m.node, done: func(err error, told bool) {
			if err != nil && len(m.claims) > 0 {
				s.unreserve(ctx, m.item.Pod, m.decision, err)
			}
			s.finish(ctx, p, m.item, m.decision, start, err, told)
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
	s.queue.Happened(scheduling.PodAdded) // pods that came meanwhile
}

// prepareGang has volumes and devices ready. It returns what failed, by place.
func (s *Scheduler) prepareGang(ctx context.Context, p *profile.Profile, placed []*placement) map[int]error {
	var mu sync.Mutex
	failed := map[int]error{}
	var workers sync.WaitGroup
	for i, m := range placed {
		if m.volumes.empty() && len(m.claims) == 0 {
			continue
		}
		workers.Go(func() {
			err := s.prepareVolumes(ctx, m.item.Pod, m.decision)
			if err == nil {
				err = s.prepareClaims(ctx, p, m.item.Pod, m.decision)
			}
			if err != nil {
				mu.Lock()
				failed[i] = fmt.Errorf("gang %s: %w", gangName(m.item.Pod), err)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return failed
}
