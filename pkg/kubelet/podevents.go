// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// relistPeriod is how often the runtime is listed without an event.
const relistPeriod = 10 * time.Second

// podWorkers are the workers of pods.
type podWorkers interface {
	HasWorker(uid types.UID) bool
	Wake(uid types.UID)
	// Orphan ends a pod that the runtime has and the API does not.
	Orphan(seen *cri.Pod)
}

// podEvents follows the container runtime and wakes the workers of pods that changed in it.
type podEvents struct {
	shared *shared
	client *cri.Client
	// listed reports whether all pods of the API are known.
	listed func() bool
	again  signal // raised to list the runtime now
}

func newPodEvents(s *shared, client *cri.Client, listed func() bool) *podEvents {
	return &podEvents{shared: s, client: client, listed: listed, again: newSignal()}
}

// run follows the runtime's events and lists the runtime periodically, until ctx ends.
func (p *podEvents) run(ctx context.Context, workers podWorkers) error {
	return runAll(ctx,
		func(ctx context.Context) error { return p.watch(ctx, workers) },
		func(ctx context.Context) error { return p.relist(ctx, workers) },
	)
}

// watch follows the runtime's event stream. The runtime is listed when the stream opens.
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

// relist lists the runtime and compares the result with the previous listing.
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
					digest[uid] = "" // another digest than any real one, so that the next listing tries this pod again
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

// changed wakes the worker of a pod, or ends the pod if the API does not have it. It returns false
// if it must be tried again later.
func (p *podEvents) changed(ctx context.Context, workers podWorkers, uid types.UID) bool {
	if workers.HasWorker(uid) {
		workers.Wake(uid)
		return true
	}
	if !p.listed() {
		return false // it is not known yet whether the API has the pod
	}
	seen, err := p.client.Pod(ctx, uid)
	if err != nil {
		p.shared.cfg.Log.Warn("Failed to read pod from the runtime", "pod", uid, "err", err)
		return false
	}
	workers.Orphan(seen)
	return true
}
