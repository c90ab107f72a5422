// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// reporters is how many requests with verdicts are under way at a time;
// singleReporters the same where there are no batches.
const (
	reporters       = 2
	singleReporters = 16
)

// verdict is what a pod that got no node is to be told, and who makes room for it.
type verdict struct {
	profile   *profile.Profile
	pod       *v1.Pod
	condition *v1.PodCondition // nil: as it is
	nominated string
	victims   []*scheduling.Pod
	must      bool   // it is not left out when there is a later one
	done      func() // nil: nobody waits for it
}

func conditionOf(reason, message string) *v1.PodCondition {
	return &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}
}

// report hands a verdict over to be carried out.
func (s *Scheduler) report(v *verdict) { s.verdicts.put(v.pod.UID, v, v.must) }

// runVerdicts carries verdicts out until ctx ends. Several may run.
func (s *Scheduler) runVerdicts(ctx context.Context) {
	for {
		some := s.verdicts.take(ctx, v1alpha1.MaxVerdicts)
		if len(some) == 0 {
			return
		}
		byProfile := map[*profile.Profile][]*verdict{}
		for _, v := range some {
			byProfile[v.profile] = append(byProfile[v.profile], v)
		}
		for p, of := range byProfile {
			for len(of) > 0 {
				n := fitting(of)
				if !s.passBatch(ctx, p, of[:n]) {
					s.passEach(ctx, of[:n])
				}
				of = of[n:]
			}
		}
		for _, v := range some {
			if v.done != nil {
				v.done()
			}
		}
	}
}

// fitting is how many verdicts go into one batch, by their victims: one at least.
func fitting(some []*verdict) int {
	victims := 0
	for i, v := range some {
		if victims += len(v.victims); victims > v1alpha1.MaxVictims && i > 0 {
			return i
		}
	}
	return len(some)
}

// passBatch returns false when the verdicts must be told one by one.
func (s *Scheduler) passBatch(ctx context.Context, p *profile.Profile, some []*verdict) bool {
	if len(some[0].victims) > v1alpha1.MaxVictims {
		return false
	}
	body := v1alpha1.VerdictBatch{
		TypeMeta:            v1alpha1.TypeMeta("VerdictBatch"),
		ReportingController: p.Name, ReportingInstance: s.batches.instance,
	}
	var victims [][]*scheduling.Pod // of each verdict in the body
	for _, v := range some {
		if out, of := s.outgoing(v); out != nil {
			body.Verdicts, victims = append(body.Verdicts, *out), append(victims, of)
		}
	}
	if len(body.Verdicts) == 0 {
		return true
	}
	var answer v1alpha1.VerdictBatch
	served, err := s.batches.post(ctx, v1alpha1.VerdictPath, body, &answer)
	if !served {
		return false
	}
	if err == nil && len(answer.Results) != len(victims) {
		err = fmt.Errorf("%d results for %d verdicts", len(answer.Results), len(victims))
	}
	for i, of := range victims {
		v, result := &body.Verdicts[i], v1alpha1.VerdictResult{}
		if err == nil {
			result = answer.Results[i]
		}
		s.unwritten(ctx, v.Namespace, v.Name, cmp.Or(err, answered(&result.Result)))
		for j, victim := range of {
			if err == nil && len(result.Victims) != len(of) {
				err = fmt.Errorf("%d results for %d victims", len(result.Victims), len(of))
			}
			if err != nil {
				s.evicted(ctx, victim, err)
				continue
			}
			s.evicted(ctx, victim, answered(&result.Victims[j]))
		}
	}
	return true
}

// outgoing is what is to be sent of a verdict, with the victims in it; nil: it
// says nothing new.
func (s *Scheduler) outgoing(v *verdict) (*v1alpha1.Verdict, []*scheduling.Pod) {
	pod := s.present(v.pod)
	if pod == nil {
		s.spare(v)
		return nil, nil
	}
	out := &v1alpha1.Verdict{PodRef: ref(pod), NominatedNode: v.nominated}
	switch c := v.condition; {
	case c == nil:
	case said(pod, c):
		s.events[v.profile.Name].failed(pod, c.Message) // once more: it becomes a series
	default:
		out.Reason, out.Message, out.Generation, out.Event = c.Reason, c.Message, pod.Generation, true
	}
	victims := s.remaining(v)
	for _, victim := range victims {
		out.Victims = append(out.Victims, ref(victim.Pod))
	}
	if out.Reason == "" && len(victims) == 0 && v.nominated == pod.Status.NominatedNodeName {
		return nil, nil
	}
	return out, victims
}

// remaining are the victims of a verdict that do not end yet, as they are now: the
// cell goes on to take over what becomes of them.
func (s *Scheduler) remaining(v *verdict) []*scheduling.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*scheduling.Pod
	for _, victim := range v.victims {
		if victim.DeletionTimestamp == nil {
			now := *victim
			out = append(out, &now)
		}
	}
	return out
}

func ref(p *v1.Pod) v1alpha1.PodRef {
	return v1alpha1.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// present is a pod's present state; nil when it has a node by now, or is gone.
func (s *Scheduler) present(pod *v1.Pod) *v1.Pod {
	s.mu.Lock()
	_, _, placed := s.view.Placed(pod.UID)
	s.mu.Unlock()
	if placed {
		return nil
	}
	return s.queue.Get(pod.UID)
}

// passEach tells verdicts to a server that takes no batches.
func (s *Scheduler) passEach(ctx context.Context, some []*verdict) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(singleReporters, len(some)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(some); i = next.Add(1) - 1 {
				s.pass(ctx, some[i])
			}
		})
	}
	workers.Wait()
}

// pass tells one verdict. The nomination comes first: were the scheduler killed
// between, the room made would not be given to others.
func (s *Scheduler) pass(ctx context.Context, v *verdict) {
	pod := s.present(v.pod)
	if pod == nil {
		s.spare(v)
		return
	}
	if v.condition != nil {
		s.events[v.profile.Name].failed(pod, v.condition.Message)
	}
	err := s.patchStatus(ctx, pod, v)
	gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	s.unwritten(ctx, pod.Namespace, pod.Name, err)
	for _, victim := range s.remaining(v) {
		if !gone {
			err = s.evict(ctx, pod, victim)
		}
		if s.evicted(ctx, victim, err); err == nil {
			s.events[v.profile.Name].preempted(victim.Pod, pod, v.nominated)
		}
	}
}

// spare lets the victims of a verdict stay: the pod needs no room any more.
func (s *Scheduler) spare(v *verdict) {
	for _, victim := range v.victims {
		s.stays(victim)
	}
}

// stays takes back that a pod was to make room. A gang that waits for it, and for
// nobody else, is tried again.
func (s *Scheduler) stays(victim *scheduling.Pod) {
	s.mu.Lock()
	delete(s.view.evicting, victim.UID)
	ready := s.gangs.left(victim.UID)
	s.mu.Unlock()
	if len(ready) > 0 {
		s.queue.Happened(scheduling.PodRemoved)
	}
}

// unwritten notes that a pod's status could not be written; one that is gone needs none.
func (s *Scheduler) unwritten(ctx context.Context, namespace, name string, err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.cfg.Log.Warn("pod status not written", "pod", namespace+"/"+name, "error", err)
	}
}

// evicted takes down how the eviction of a victim went.
func (s *Scheduler) evicted(ctx context.Context, victim *scheduling.Pod, err error) {
	if err == nil {
		s.metrics.victims.Inc()
		return
	}
	s.stays(victim)
	if ctx.Err() != nil {
		return
	}
	if !apierrors.IsNotFound(err) {
		s.cfg.Log.Warn("pod not evicted", "pod", victim.Namespace+"/"+victim.Name, "error", err)
	}
	s.queue.Happened(scheduling.PodRemoved) // whoever waited for it looks again
}
