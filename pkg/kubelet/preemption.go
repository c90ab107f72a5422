// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
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
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// defaultGrace is the grace period, in seconds, of a pod whose spec does not set one.
const defaultGrace = 30

// minPatience is the minimum time that a critical pod waits for a preempted pod to end.
const minPatience = 10 * time.Second

// preemptionsFile stores which pods are being preempted (the victims). If the kubelet restarts
// before they have ended, the new process continues to end them, because the critical pods that
// need the room were already admitted.
const preemptionsFile = "preempted_pods_state"

// preemptions records which pods (victims) the kubelet ends to make room for critical pods, and
// which victims each critical pod waits for. It is safe for concurrent use.
type preemptions struct {
	clock clock.Clock
	log   *slog.Logger
	path  string

	mu sync.Mutex
	// victims are the pods that are being ended, by UID. A pod stays here until it has left nothing
	// on the node. The mutex mu also guards the file at path.
	victims map[types.UID]*victim
	rooms   map[types.UID]*room // what each waiting critical pod waits for, by its UID
	loaded  map[types.UID]bool  // UIDs of the victims that an earlier kubelet process began to end
}

// victim is a pod that is being ended. For lists the UIDs of the critical pods that it makes room
// for, and Grace is its grace period in seconds.
type victim struct {
	For   []types.UID `json:"for"`
	Grace int64       `json:"grace"`
}

// room describes what a critical pod waits for. The pod starts when all pods in the field by have
// ended, and at the latest at the time in the field until.
type room struct {
	by    map[types.UID]bool
	until time.Time
}

// newPreemptions reads the unfinished preemptions from the file in dir. The file does not contain
// how long critical pods have already waited, so each of them gets its full waiting time again.
func newPreemptions(c clock.Clock, log *slog.Logger, dir string) *preemptions {
	p := &preemptions{clock: c, log: log, path: filepath.Join(dir, preemptionsFile),
		rooms: map[types.UID]*room{}, loaded: map[types.UID]bool{}}
	if _, err := checkpoint.Read(p.path, &p.victims); err != nil {
		log.Warn("Failed to read the record of preempted pods", "err", err)
	}
	if p.victims == nil {
		p.victims = map[types.UID]*victim{}
	}
	for uid, v := range p.victims {
		p.loaded[uid] = true
		for _, pod := range v.For {
			p.await(pod, uid, v.Grace)
		}
	}
	return p
}

// save writes the preempted pods (the victims) to the file. The caller holds the lock.
func (p *preemptions) save() {
	if err := checkpoint.Write(p.path, p.victims); err != nil {
		p.log.Warn("Failed to write the record of preempted pods", "err", err)
	}
}

// begin records that the kubelet ends the victim uid to make room for the critical pod. It returns
// true if the victim was not being ended before.
func (p *preemptions) begin(pod, uid types.UID, grace int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.victims[uid]
	first := v == nil
	if first {
		v = &victim{Grace: grace}
		p.victims[uid] = v
	}
	if !slices.Contains(v.For, pod) {
		v.For = append(v.For, pod)
		p.save()
	}
	p.await(pod, uid, grace)
	return first
}

// await records that the critical pod waits for the end of the victim uid. The caller holds the
// lock.
func (p *preemptions) await(pod, uid types.UID, grace int64) {
	r := p.rooms[pod]
	if r == nil {
		r = &room{by: map[types.UID]bool{}}
		p.rooms[pod] = r
	}
	r.by[uid] = true
	patience := max(time.Duration(grace)*time.Second*3/2, minPatience)
	if until := p.clock.Now().Add(patience); until.After(r.until) {
		r.until = until
	}
}

// resumed reports whether an earlier kubelet process began to preempt the pod.
func (p *preemptions) resumed(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded[uid]
}

// forget removes the record of a preempted pod that no longer has anything on the node.
func (p *preemptions) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.loaded, uid)
	if _, ok := p.victims[uid]; ok {
		delete(p.victims, uid)
		p.save()
	}
}

// all returns the UIDs of the preempted pods.
func (p *preemptions) all() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.victims))
}

// until returns the time at which the critical pod starts even if not all of its victims have
// ended. The zero time means that the pod need not wait.
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

// podEnded records that all containers of a pod have ended. It returns the critical pods that no
// longer have to wait because of that.
func (p *preemptions) podEnded(pod types.UID) []types.UID {
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

// preemption ends pods to make room for critical pods.
type preemption struct {
	*preemptions
	shared *shared
}

var _ worker.Preemption = (*preemption)(nil)

func newPreemption(s *shared) *preemption {
	return &preemption{newPreemptions(s.cfg.Clock, s.cfg.Log, s.cfg.RootDir), s}
}

// preempt ends the pod victim to make room for the critical pod. The victim keeps its own grace
// period. missing is the resource that the critical pod lacks.
func (p *preemption) preempt(critical, victim *v1.Pod, missing v1.ResourceName) {
	grace := int64(defaultGrace)
	if g := victim.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if !p.begin(critical.UID, victim.UID, grace) {
		return
	}
	v := preempted()
	p.shared.events.pod(victim, "", v1.EventTypeWarning, v.Reason, v.Message)
	p.shared.workers.Evict(victim.UID, v, grace)
	p.shared.metrics.pods.Preempted(string(missing))
}

// preempted returns the status of a pod that is ended to make room for a critical pod.
func preempted() status.Verdict {
	return status.Verdict{
		Phase: v1.PodFailed, Reason: "Preempting", Message: "Preempted in order to admit critical pod",
		Disruption: true, Condition: "Pod was preempted by Kubelet to accommodate a critical pod.",
	}
}

// StartBy implements worker.Preemption. It returns the time until which the pod waits for its
// victims.
func (p *preemption) StartBy(pod types.UID) time.Time { return p.until(pod) }

// Victim implements worker.Preemption. It returns the status of a pod that an earlier kubelet
// process began to preempt, or nil for other pods.
func (p *preemption) Victim(pod types.UID) *status.Verdict {
	if !p.resumed(pod) {
		return nil
	}
	v := preempted()
	return &v
}

// released wakes the critical pods that were waiting only for the end of this pod.
func (p *preemption) released(pod types.UID) {
	for _, waiting := range p.podEnded(pod) {
		p.shared.workers.Wake(waiting)
	}
}
