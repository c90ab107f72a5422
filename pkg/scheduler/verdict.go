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
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// reporters is how many requests with batches of verdicts are sent at the same time.
// singleReporters is how many requests with one verdict are sent at the same time if the server
// does not support batches.
const (
	reporters       = 2
	singleReporters = 16
)

// verdict is what the scheduler writes about a pod without a node: the pod's condition, its
// nominated node, and the victims to evict for it.
type verdict struct {
	profile   *profile.Profile
	pod       *v1.Pod
	condition *v1.PodCondition // nil if the condition does not change
	nominated string
	victims   []*scheduling.Pod
	preemptor *schedulingv1beta1.PodGroup // see decision.preemptor
	must      bool                        // later verdicts about the pod must not replace this one in the mailbox
	done      func()                      // called after the verdict was sent; may be nil
}

func conditionOf(reason, message string) *v1.PodCondition {
	return &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}
}

// report queues a verdict for runVerdicts.
func (s *Scheduler) report(v *verdict) { s.verdicts.put(v.pod.UID, v, v.must) }

// runVerdicts sends queued verdicts until ctx ends. Several goroutines may run it.
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

// fitting returns how many of the verdicts fit into one batch, which may have at most MaxVictims
// victims. It returns at least 1.
func fitting(some []*verdict) int {
	victims := 0
	for i, v := range some {
		if victims += len(v.victims); victims > v1alpha1.MaxVictims && i > 0 {
			return i
		}
	}
	return len(some)
}

// sendBatch sends verdicts in one request. It returns false if the caller must send them one by
// one.
func (s *Scheduler) sendBatch(ctx context.Context, p *profile.Profile, some []*verdict) bool {
	if len(some[0].victims) > v1alpha1.MaxVictims {
		return false
	}
	body := v1alpha1.VerdictBatch{
		TypeMeta:            v1alpha1.TypeMeta("VerdictBatch"),
		ReportingController: p.Name, ReportingInstance: s.batches.instance,
	}
	var victims [][]*scheduling.Pod // victims of each verdict in the request
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

// outgoing converts a verdict to the form in which it is sent, and returns its victims. It returns
// nil if the pod's status would not change and there are no victims.
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
	if g := v.preemptor; g != nil {
		out.PodGroup, out.PodGroupUID = g.Name, g.UID
	}
	if out.Reason == "" && len(victims) == 0 && v.nominated == pod.Status.NominatedNodeName {
		return nil, nil
	}
	return out, victims
}

// remaining returns copies of the verdict's victims that are not terminating yet. The copies are
// needed because event handlers update the originals.
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

// latestPod returns the latest state of a pending pod, or nil if the pod has a node or does not
// exist.
func (s *Scheduler) latestPod(pod *v1.Pod) *v1.Pod {
	s.mu.Lock()
	_, _, placed := s.view.Placed(pod.UID)
	s.mu.Unlock()
	if placed {
		return nil
	}
	return s.queue.Get(pod.UID)
}

// sendEach sends verdicts one by one, several at the same time. It is used if the server does not
// support batches.
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

// send sends one verdict. It writes the nominated node before it evicts victims: if the scheduler
// is killed in between, other pods must not get the resources that the victims free.
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
			err = s.evict(ctx, v, victim)
		}
		if s.finishEviction(ctx, victim, err); err == nil {
			s.events[v.profile.Name].preempted(victim.Pod, pod, v)
		}
	}
}

// cancelEvictions cancels the evictions of a verdict whose pod no longer needs a node.
func (s *Scheduler) cancelEvictions(v *verdict) {
	for _, victim := range v.victims {
		s.cancelEviction(victim)
	}
}

// cancelEviction cancels the eviction of a pod. If a gang waited only for this victim to leave, the
// gang is tried again.
func (s *Scheduler) cancelEviction(victim *scheduling.Pod) {
	s.mu.Lock()
	s.view.evicting.remove(victim.UID)
	ready := s.gangs.left(victim.UID)
	s.mu.Unlock()
	if len(ready) > 0 {
		s.queue.Happened(scheduling.PodRemoved)
	}
}

// logStatusError logs an error of writing a pod's status, unless the error means that the pod no
// longer exists, or ctx has ended.
func (s *Scheduler) logStatusError(ctx context.Context, namespace, name string, err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.cfg.Log.Warn("Failed to write pod status", "pod", namespace+"/"+name, "err", err)
	}
}

// finishEviction handles the result of an eviction. err is nil if the victim was deleted.
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
	s.queue.Happened(scheduling.PodRemoved) // the pod that needed the room may now choose other victims
}
