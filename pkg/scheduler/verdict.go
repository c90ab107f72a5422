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

// reporters is how many requests with verdicts are sent at a time. singleReporters is how many
// requests are sent at a time if the server does not support batches.
const (
	reporters       = 2
	singleReporters = 16
)

// verdict is what is reported about a pod without a node: its condition, its nominated node, and
// the victims to evict.
type verdict struct {
	profile   *profile.Profile
	pod       *v1.Pod
	condition *v1.PodCondition // nil if the condition does not change
	nominated string
	victims   []*scheduling.Pod
	must      bool   // a later verdict about the pod does not replace it
	done      func() // called when the verdict was carried out; may be nil
}

func conditionOf(reason, message string) *v1.PodCondition {
	return &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}
}

// report queues a verdict.
func (s *Scheduler) report(v *verdict) { s.verdicts.put(v.pod.UID, v, v.must) }

// runVerdicts carries out verdicts until ctx ends. It may run several times at once.
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
				if !s.sendBatch(ctx, p, of[:n]) {
					s.sendEach(ctx, of[:n])
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

// fitting returns how many verdicts fit into one batch, which may have at most MaxVictims victims.
// It returns at least one.
func fitting(some []*verdict) int {
	victims := 0
	for i, v := range some {
		if victims += len(v.victims); victims > v1alpha1.MaxVictims && i > 0 {
			return i
		}
	}
	return len(some)
}

// sendBatch sends verdicts in one request. It returns false if they must be sent one by one.
func (s *Scheduler) sendBatch(ctx context.Context, p *profile.Profile, some []*verdict) bool {
	if len(some[0].victims) > v1alpha1.MaxVictims {
		return false
	}
	body := v1alpha1.VerdictBatch{
		TypeMeta:            v1alpha1.TypeMeta("VerdictBatch"),
		ReportingController: p.Name, ReportingInstance: s.batches.instance,
	}
	var victims [][]*scheduling.Pod // victims of each verdict in the body
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
		s.logStatusError(ctx, v.Namespace, v.Name, cmp.Or(err, answered(&result.Result)))
		for j, victim := range of {
			if err == nil && len(result.Victims) != len(of) {
				err = fmt.Errorf("%d results for %d victims", len(result.Victims), len(of))
			}
			if err != nil {
				s.finishEviction(ctx, victim, err)
				continue
			}
			s.finishEviction(ctx, victim, answered(&result.Victims[j]))
		}
	}
	return true
}

// outgoing returns a verdict as it is sent, with its victims, or nil if it has nothing new.
func (s *Scheduler) outgoing(v *verdict) (*v1alpha1.Verdict, []*scheduling.Pod) {
	pod := s.latestPod(v.pod)
	if pod == nil {
		s.cancelEvictions(v)
		return nil, nil
	}
	out := &v1alpha1.Verdict{PodRef: ref(pod), NominatedNode: v.nominated}
	switch c := v.condition; {
	case c == nil:
	case hasCondition(pod, c):
		s.events[v.profile.Name].failed(pod, c.Message) // the recorder combines repeated events into a series
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

// remaining returns the victims of a verdict that are not terminating yet. They are copies, because
// the cell updates its pods.
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

// latestPod returns a pod's latest state, or nil if it has a node or does not exist.
func (s *Scheduler) latestPod(pod *v1.Pod) *v1.Pod {
	s.mu.Lock()
	_, _, placed := s.view.Placed(pod.UID)
	s.mu.Unlock()
	if placed {
		return nil
	}
	return s.queue.Get(pod.UID)
}

// sendEach sends verdicts one by one, to a server that does not support batches.
func (s *Scheduler) sendEach(ctx context.Context, some []*verdict) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(singleReporters, len(some)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(some); i = next.Add(1) - 1 {
				s.send(ctx, some[i])
			}
		})
	}
	workers.Wait()
}

// send sends one verdict. It writes the nomination first: if the scheduler is killed in between,
// other pods must not get the room that the evictions make.
func (s *Scheduler) send(ctx context.Context, v *verdict) {
	pod := s.latestPod(v.pod)
	if pod == nil {
		s.cancelEvictions(v)
		return
	}
	if v.condition != nil {
		s.events[v.profile.Name].failed(pod, v.condition.Message)
	}
	err := s.patchStatus(ctx, pod, v)
	gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	s.logStatusError(ctx, pod.Namespace, pod.Name, err)
	for _, victim := range s.remaining(v) {
		if !gone {
			err = s.evict(ctx, pod, victim)
		}
		if s.finishEviction(ctx, victim, err); err == nil {
			s.events[v.profile.Name].preempted(victim.Pod, pod, v.nominated)
		}
	}
}

// cancelEvictions cancels the evictions of a verdict, because its pod needs no room any more.
func (s *Scheduler) cancelEvictions(v *verdict) {
	for _, victim := range v.victims {
		s.cancelEviction(victim)
	}
}

// cancelEviction cancels the eviction of a pod. A gang that waits only for this victim is tried
// again.
func (s *Scheduler) cancelEviction(victim *scheduling.Pod) {
	s.mu.Lock()
	delete(s.view.evicting, victim.UID)
	ready := s.gangs.left(victim.UID)
	s.mu.Unlock()
	if len(ready) > 0 {
		s.queue.Happened(scheduling.PodRemoved)
	}
}

// logStatusError logs that a pod's status could not be written, unless the pod does not exist any
// more.
func (s *Scheduler) logStatusError(ctx context.Context, namespace, name string, err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.cfg.Log.Warn("Failed to write pod status", "pod", namespace+"/"+name, "err", err)
	}
}

// finishEviction handles the result of an eviction.
func (s *Scheduler) finishEviction(ctx context.Context, victim *scheduling.Pod, err error) {
	if err == nil {
		s.metrics.evictions.Inc()
		return
	}
	s.cancelEviction(victim)
	if ctx.Err() != nil {
		return
	}
	if !apierrors.IsNotFound(err) {
		s.cfg.Log.Warn("Failed to evict pod", "pod", victim.Namespace+"/"+victim.Name, "err", err)
	}
	s.queue.Happened(scheduling.PodRemoved) // pods that waited for its room are tried again
}
