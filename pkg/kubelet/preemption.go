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

// defaultGrace is the grace period in seconds of a pod whose spec has none.
const defaultGrace = 30

// minPatience is the minimum time that a critical pod waits for a victim to end.
const minPatience = 10 * time.Second

// preemptionsFile stores the victims. If the kubelet is killed meanwhile, it continues to end the
// victims after its restart, because the critical pods were already admitted.
const preemptionsFile = "preempted_pods_state"

// preemptions records which pods end to make room for critical pods, and what the critical pods
// wait for. It is safe for concurrent use.
type preemptions struct {
	clock clock.Clock
	log   *slog.Logger
	path  string

	mu sync.Mutex
	// victims are the pods that are being ended and still have something on the node. mu guards the
	// file too.
	victims map[types.UID]*victim
	rooms   map[types.UID]*room // key: UID of the critical pod
	loaded  map[types.UID]bool  // victims of an earlier kubelet process
}

// victim is a pod that ends: the critical pods that it makes room for, and its grace period in
// seconds.
type victim struct {
	For   []types.UID `json:"for"`
	Grace int64       `json:"grace"`
}

// room is what a critical pod waits for: the end of all these pods, or the given time.
type room struct {
	by    map[types.UID]bool
	until time.Time
}

// newPreemptions reads preemptions from the file in dir. The time for which critical pods wait for
// their victims starts again.
func newPreemptions(c clock.Clock, log *slog.Logger, dir string) *preemptions {
	p := &preemptions{clock: c, log: log, path: filepath.Join(dir, preemptionsFile),
		rooms: map[types.UID]*room{}, loaded: map[types.UID]bool{}}
	if _, err := checkpoint.Read(p.path, &p.victims); err != nil {
		log.Warn("Failed to read the file of preempted pods", "err", err)
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

// save writes the file. The caller holds the lock.
func (p *preemptions) save() {
	if err := checkpoint.Write(p.path, p.victims); err != nil {
		p.log.Warn("Failed to write the file of preempted pods", "err", err)
	}
}

// begin records that the pod uid must end for another pod. It reports whether that was not recorded
// before.
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

// await records that a pod waits for the end of the pod victim. The caller holds the lock.
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

// resumed reports whether an earlier kubelet process began to end the pod.
func (p *preemptions) resumed(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded[uid]
}

// forget records that a pod has left nothing on the node.
func (p *preemptions) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.loaded, uid)
	if _, ok := p.victims[uid]; ok {
		delete(p.victims, uid)
		p.save()
	}
}

// all returns the victims.
func (p *preemptions) all() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.victims))
}

// until returns the latest time at which to start a critical pod, even if not all of its victims
// have ended by then. Zero means now.
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

// podEnded records that all containers of a pod have ended, and returns the pods that need not wait
// any longer.
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

// preemption ends pods to make room for critical ones.
type preemption struct {
	*preemptions
	shared *shared
}

var _ worker.Preemption = (*preemption)(nil)

func newPreemption(s *shared) *preemption {
	return &preemption{newPreemptions(s.cfg.Clock, s.cfg.Log, s.cfg.RootDir), s}
}

// preempt ends a pod for a critical one, within its own grace period. missing is the resource that
// the critical pod lacks.
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

// preempted returns the status of a pod that is ended to make room for a critical one.
func preempted() status.Verdict {
	return status.Verdict{
		Phase: v1.PodFailed, Reason: "Preempting", Message: "Preempted in order to admit critical pod",
		Disruption: true, Condition: "Pod was preempted by Kubelet to accommodate a critical pod.",
	}
}

// StartBy implements worker.Preemption.
func (p *preemption) StartBy(pod types.UID) time.Time { return p.until(pod) }

// Victim implements worker.Preemption.
func (p *preemption) Victim(pod types.UID) *status.Verdict {
	if !p.resumed(pod) {
		return nil
	}
	v := preempted()
	return &v
}

// released wakes pods that waited for the end of this one.
func (p *preemption) released(pod types.UID) {
	for _, waiting := range p.podEnded(pod) {
		p.shared.workers.Wake(waiting)
	}
}
