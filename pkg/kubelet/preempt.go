// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// defaultGrace is what a pod has to end that does not say.
const defaultGrace = 30

// minPatience is how long a pod that makes room is waited for at least.
const minPatience = 10 * time.Second

// preemptions are the pods that end so that critical ones have room, and what these wait for. They are safe for concurrent use.
type preemptions struct {
	clock clock.Clock

	mu    sync.Mutex
	rooms map[types.UID]*room // by the pod that is to have it
}

// room is what a pod waits for: that all of these have ended, but not for ever.
type room struct {
	by    map[types.UID]bool
	until time.Time
}

func newPreemptions(c clock.Clock) *preemptions {
	return &preemptions{clock: c, rooms: map[types.UID]*room{}}
}

// begin notes that a pod ends for another, and tells whether it did not end for one already.
func (p *preemptions) begin(pod, victim types.UID, grace int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := true
	for _, r := range p.rooms {
		first = first && !r.by[victim]
	}
	r := p.rooms[pod]
	if r == nil {
		r = &room{by: map[types.UID]bool{}}
		p.rooms[pod] = r
	}
	r.by[victim] = true
	patience := max(time.Duration(grace)*time.Second*3/2, minPatience)
	if until := p.clock.Now().Add(patience); until.After(r.until) {
		r.until = until
	}
	return first
}

// until is when a pod is to be started at the latest, though not all have ended that make room for it; zero: now.
func (p *preemptions) until(pod types.UID) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rooms[pod]
	if r == nil {
		return time.Time{}
	}
	if !p.clock.Now().Before(r.until) {
		delete(p.rooms, pod)
		return time.Time{}
	}
	return r.until
}

// ended notes that nothing of a pod runs any more, and returns those that need not wait any longer.
func (p *preemptions) ended(pod types.UID) []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rooms, pod)
	var free []types.UID
	for waiting, r := range p.rooms {
		if delete(r.by, pod); len(r.by) == 0 {
			delete(p.rooms, waiting)
			free = append(free, waiting)
		}
	}
	return free
}

// preempt ends a pod for a critical one, within its own grace period. missing is the resource of which there is too little.
func (k *Kubelet) preempt(critical, pod *v1.Pod, missing v1.ResourceName) {
	const reason, message = "Preempting", "Preempted in order to admit critical pod"
	grace := int64(defaultGrace)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if !k.preemptions.begin(critical.UID, pod.UID, grace) {
		return
	}
	k.events.pod(pod, "", v1.EventTypeWarning, reason, message)
	k.pool.Evict(pod.UID, status.Verdict{
		Phase: v1.PodFailed, Reason: reason, Message: message, Disruption: true, Condition: "Pod was preempted by Kubelet to accommodate a critical pod.",
	}, grace)
	k.counts.Preempted(string(missing))
}

// released gives back what the node has given to a pod, of which nothing runs any more.
func (k *Kubelet) released(ctx context.Context, uid types.UID) error {
	if err := k.hardware.release(ctx, uid); err != nil {
		return err
	}
	for _, waiting := range k.preemptions.ended(uid) {
		k.wake(waiting)
	}
	return nil
}
