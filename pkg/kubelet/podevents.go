// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// relistPeriod is how often the kubelet lists the runtime's pods if no event triggers a listing.
const relistPeriod = 10 * time.Second

// podWorkers are the workers of pods. Each worker runs one pod.
type podWorkers interface {
	HasWorker(uid types.UID) bool
	Wake(uid types.UID)
	// Orphan ends a pod that exists in the runtime but that the kubelet does not know.
	Orphan(seen *cri.Pod)
}

// podEvents follows the container runtime and wakes the workers of pods that have changed there.
type podEvents struct {
	shared *shared
	client *cri.Client
	// listed reports whether the workers have the pods of all sources.
	listed func() bool
	again  signal // raised to make relist list the runtime now
}

func newPodEvents(s *shared, client *cri.Client, listed func() bool) *podEvents {
	return &podEvents{shared: s, client: client, listed: listed, again: newSignal()}
}

// run follows the runtime's event stream and lists the runtime's pods periodically, until ctx ends.
func (p *podEvents) run(ctx context.Context, workers podWorkers) error {
	return runAll(ctx,
		func(ctx context.Context) error { return p.watch(ctx, workers) },
		func(ctx context.Context) error { return p.relist(ctx, workers) },
	)
}

// watch wakes the worker of each pod that the runtime's event stream names. Each time the stream
// opens, it makes relist list the runtime, because events may have been missed.
func (p *podEvents) watch(ctx context.Context, workers podWorkers) error {
	opened := func() {
		p.shared.metrics.upkeep.Stream(true)
		p.again.raise()
	}
	happened := func(pod types.UID, at time.Time) {
		p.shared.metrics.upkeep.Event(p.shared.cfg.Clock.Since(at))
		workers.Wake(pod)
	}
	for {
		err := p.client.Watch(ctx, opened, happened)
		if ctx.Err() != nil {
			return nil
		}
		p.shared.metrics.upkeep.Stream(false)
		p.shared.cfg.Log.Debug("Event stream of the runtime ended", "err", err)
		if !pause(ctx, p.shared.cfg.Clock, startPoll) {
			return nil
		}
	}
}

// relist lists the runtime's pods and wakes the workers of those that differ from the previous
// listing.
func (p *podEvents) relist(ctx context.Context, workers podWorkers) error {
	clock := p.shared.cfg.Clock
	t := clock.NewTicker(relistPeriod)
	defer t.Stop()
	last := map[types.UID]string{}
	var listed time.Time
	for {
		p.shared.heartbeat.beat()
		begun := clock.Now()
		digest, err := p.client.Digest(ctx)
		if err == nil {
			p.shared.metrics.upkeep.Listed(listed, begun, clock.Now())
			listed = begun
			for uid, word := range digest {
				if last[uid] != word && !p.changed(ctx, workers, uid) {
					digest[uid] = "" // differs from every real digest, so that the next listing tries this pod again
				}
			}
			for uid := range last {
				if _, there := digest[uid]; !there {
					workers.Wake(uid)
				}
			}
			last = digest
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.again:
		case <-t.C():
		}
	}
}

// changed wakes the worker of a pod that has changed in the runtime. If no source has the pod,
// changed ends it. It returns false if the caller must try again later.
func (p *podEvents) changed(ctx context.Context, workers podWorkers, uid types.UID) bool {
	listed := p.listed() // before HasWorker: if it is true, each pod of the sources has had a worker
	if workers.HasWorker(uid) {
		workers.Wake(uid)
		return true
	}
	if !listed {
		return false // a source may still have this pod, so it must not be ended yet
	}
	seen, err := p.client.Pod(ctx, uid)
	if err != nil {
		p.shared.cfg.Log.Warn("Failed to read pod from the runtime", "pod", uid, "err", err)
		return false
	}
	workers.Orphan(seen)
	return true
}
