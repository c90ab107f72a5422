// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/checkpoint"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// defaultGrace is what a pod has to end that does not say.
const defaultGrace = 30

// minPatience is how long a pod that makes room is waited for at least.
const minPatience = 10 * time.Second

// preemptionsFile has the pods that end so that critical ones have room: a kubelet that is killed meanwhile goes on to end them, for the
// critical ones have been admitted.
const preemptionsFile = "preempted_pods_state"

// preemptions are the pods that end so that critical ones have room, and what these wait for. They are safe for concurrent use.
type preemptions struct {
	clock clock.Clock
	log   *slog.Logger
	path  string

	mu sync.Mutex
	// victims are the pods that end, until nothing is left of them on the node; guarded by mu, as the file is.
	victims map[types.UID]*preemption
	rooms   map[types.UID]*room // by the pod that is to have it
	loaded  map[types.UID]bool  // victims of an earlier process
}

// preemption is for whom a pod ends, and how many seconds it has for that.
type preemption struct {
	For   []types.UID `json:"for"`
	Grace int64       `json:"grace"`
}

// room is what a pod waits for: that all of these have ended, but not for ever.
type room struct {
	by    map[types.UID]bool
	until time.Time
}

// newPreemptions takes up those of which a file in dir tells. They are waited for anew.
func newPreemptions(c clock.Clock, log *slog.Logger, dir string) *preemptions {
	p := &preemptions{clock: c, log: log, path: filepath.Join(dir, preemptionsFile), rooms: map[types.UID]*room{}, loaded: map[types.UID]bool{}}
	if _, err := checkpoint.Read(p.path, &p.victims); err != nil {
		log.Warn("Preemptions are forgotten", "err", err)
	}
	if p.victims == nil {
		p.victims = map[types.UID]*preemption{}
	}
	for victim, v := range p.victims {
		p.loaded[victim] = true
		for _, pod := range v.For {
			p.await(pod, victim, v.Grace)
		}
	}
	return p
}

// save writes the file. The caller holds the lock.
func (p *preemptions) save() {
	if err := checkpoint.Write(p.path, p.victims); err != nil {
		p.log.Warn("Preemptions are not saved", "err", err)
	}
}

// begin notes that a pod ends for another, and tells whether it did not end for one already.
func (p *preemptions) begin(pod, victim types.UID, grace int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.victims[victim]
	first := v == nil
	if first {
		v = &preemption{Grace: grace}
		p.victims[victim] = v
	}
	if !slices.Contains(v.For, pod) {
		v.For = append(v.For, pod)
		p.save()
	}
	p.await(pod, victim, grace)
	return first
}

// await has a pod wait for another's end. The caller holds the lock.
func (p *preemptions) await(pod, victim types.UID, grace int64) {
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
}

// resumed tells whether a pod is one that an earlier process began to end.
func (p *preemptions) resumed(victim types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded[victim]
}

// forget notes that nothing is left of a pod on the node.
func (p *preemptions) forget(victim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.loaded, victim)
	if _, ok := p.victims[victim]; ok {
		delete(p.victims, victim)
		p.save()
	}
}

// all are the pods that end.
func (p *preemptions) all() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.victims))
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
	grace := int64(defaultGrace)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if !k.preemptions.begin(critical.UID, pod.UID, grace) {
		return
	}
	v := preempted()
	k.events.pod(pod, "", v1.EventTypeWarning, v.Reason, v.Message)
	k.pool.Evict(pod.UID, v, grace)
	k.counts.Preempted(string(missing))
}

// preempted is why a pod ends that makes room for a critical one.
func preempted() status.Verdict {
	return status.Verdict{
		Phase: v1.PodFailed, Reason: "Preempting", Message: "Preempted in order to admit critical pod",
		Disruption: true, Condition: "Pod was preempted by Kubelet to accommodate a critical pod.",
	}
}

// doomed returns why a pod ends that an earlier kubelet began to end, or nil.
func (k *Kubelet) doomed(uid types.UID) *status.Verdict {
	if !k.preemptions.resumed(uid) {
		return nil
	}
	v := preempted()
	return &v
}

// released gives back what the node has given to a pod, of which nothing runs any more.
func (k *Kubelet) released(ctx context.Context, uid types.UID) error {
	if err := k.hardware.release(ctx, uid); err != nil {
		return err
	}
	k.roomBy(uid)
	return nil
}

// roomBy has those started that need not wait any longer, since a pod has ended.
func (k *Kubelet) roomBy(uid types.UID) {
	for _, waiting := range k.preemptions.ended(uid) {
		k.wake(waiting)
	}
}
