// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"keelson.dev/keelson/pkg/kubelet/worker"
)

const (
	// relistPeriod is how often the runtime is listed without a reason.
	relistPeriod = 10 * time.Second
	// housekeepingPeriod is how often what pods may have left behind is looked for.
	housekeepingPeriod = 30 * time.Second
)

// follow wakes the workers of pods of which something changed in the runtime.
func (k *Kubelet) follow(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.watch(ctx) })
	g.Go(func() error { return k.relist(ctx) })
	return g.Wait()
}

// tidy keeps the node in order, once all its pods are known.
func (k *Kubelet) tidy(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.housekeeping(ctx) })
	g.Go(func() error { return k.eviction.Run(ctx) })
	return g.Wait()
}

// loopPatience is how long a turn of the relisting may take: longer than any call to the runtime.
const loopPatience = 5 * time.Minute

// loop notes that the kubelet still looks at its runtime.
type loop struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	begun time.Time // of the last turn; zero before the first
}

func (l *loop) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = l.clock.Now()
}

// check fails when the last turn has not ended for long.
func (l *loop) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun.IsZero() && l.clock.Since(l.begun) > loopPatience {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}

// watch follows the runtime's events; when the stream breaks the runtime is listed anew.
func (k *Kubelet) watch(ctx context.Context) error {
	for {
		err := k.runtime.client.Watch(ctx, k.opened, k.happened)
		if ctx.Err() != nil {
			return nil
		}
		k.nodeCounts.Stream(false)
		k.cfg.Log.Debug("event stream of the runtime ended", "error", err)
		if !pause(ctx, k.cfg.Clock, startPoll) {
			return nil
		}
	}
}

// opened is called when the stream of the runtime's events stands.
func (k *Kubelet) opened() {
	k.nodeCounts.Stream(true)
	k.relistNow()
}

// happened has a pod looked at of which the runtime has told something.
func (k *Kubelet) happened(pod types.UID, at time.Time) {
	k.nodeCounts.Event(k.cfg.Clock.Since(at))
	k.pool.Wake(pod)
}

// relistNow has the runtime listed without waiting for its turn.
func (k *Kubelet) relistNow() {
	select {
	case k.listAgain <- struct{}{}:
	default:
	}
}

// relist compares what the runtime has with what it had.
func (k *Kubelet) relist(ctx context.Context) error {
	t := k.cfg.Clock.NewTicker(relistPeriod)
	defer t.Stop()
	last := map[types.UID]string{}
	var listed time.Time
	for {
		k.loop.turn()
		begun := k.cfg.Clock.Now()
		digest, err := k.runtime.client.Digest(ctx)
		if err == nil {
			k.nodeCounts.Listed(listed, begun, k.cfg.Clock.Now())
			listed = begun
			for uid, word := range digest {
				if last[uid] != word && !k.changed(ctx, uid) {
					digest[uid] = "" // again at the next listing
				}
			}
			for uid := range last {
				if _, there := digest[uid]; !there {
					k.pool.Wake(uid)
				}
			}
			last = digest
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.listAgain:
		case <-t.C():
		}
	}
}

// changed has a pod looked at; one that the API does not have is ended. It tells
// whether that could be seen to.
func (k *Kubelet) changed(ctx context.Context, uid types.UID) bool {
	if k.pool.Knows(uid) {
		k.pool.Wake(uid)
		return true
	}
	if !k.sources.listed.Load() {
		return false // it may be a pod that the API has
	}
	seen, err := k.runtime.client.Pod(ctx, uid)
	if err != nil {
		k.cfg.Log.Warn("pod of the runtime is not read", "pod", uid, "error", err)
		return false
	}
	k.pool.Orphan(seen)
	return true
}

// housekeeping gives back what pods held that nobody knows any more.
func (k *Kubelet) housekeeping(ctx context.Context) error {
	t := k.cfg.Clock.NewTicker(housekeepingPeriod)
	defer t.Stop()
	for {
		if err := errors.Join(k.sweep(ctx), k.share()); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("what pods left behind is not given back", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

// tracer makes the kubelet's own spans.
func (k *Kubelet) tracer() trace.Tracer {
	return k.cfg.Tracing.Tracer("keelson.dev/keelson/pkg/kubelet")
}

// sweep gives back what pods held that are in neither the API nor the runtime.
func (k *Kubelet) sweep(ctx context.Context) error {
	ctx, span := k.tracer().Start(ctx, "Containers/GarbageCollect")
	defer span.End()
	err := k.giveBack(ctx)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "what pods left behind is not given back")
	}
	return err
}

func (k *Kubelet) giveBack(ctx context.Context) error {
	running, err := k.runtime.client.Digest(ctx)
	if err != nil {
		return fmt.Errorf("list the runtime: %w", err)
	}
	unknown := func(uid types.UID) bool {
		_, there := running[uid]
		return !there && !k.pool.Knows(uid)
	}
	left, err := k.volumes.Pods()
	if err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	for _, uid := range left {
		if unknown(uid) {
			if err := k.volumes.Teardown(ctx, uid); err != nil {
				return fmt.Errorf("volumes of %s: %w", uid, err)
			}
		}
	}
	if err := worker.SweepFiles(k.cfg.RootDir, unknown); err != nil {
		return err
	}
	if err := k.logs.Sweep(func(uid types.UID) bool { return !unknown(uid) }); err != nil {
		return err
	}
	for _, uid := range slices.Concat(k.allocation.Pods(), k.preemptions.all()) {
		if unknown(uid) {
			k.forget(uid)
		}
	}
	for _, uid := range k.cgroups.Pods() {
		if unknown(uid) {
			if err := k.cgroups.Remove(ctx, uid); err != nil {
				return fmt.Errorf("cgroup of %s: %w", uid, err)
			}
		}
	}
	if err := k.collectNetworks(ctx); err != nil {
		return err
	}
	if err := k.collectShims(); err != nil {
		return err
	}
	// Last: drivers may be away.
	for _, uid := range k.hardware.pods() {
		if unknown(uid) {
			if err := k.hardware.release(ctx, uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectNetworks removes the network namespaces that the runtime left when it was
// killed while it made sandboxes, and gives back what was allocated to them.
func (k *Kubelet) collectNetworks(ctx context.Context) error {
	left, err := k.namespaces.Abandoned()
	if err != nil || len(left) == 0 {
		return err
	}
	_, err = k.runtime.client.Quietly(func() error { // if not now, at the next sweep
		for _, file := range left {
			k.cfg.Log.Warn("network namespace without a sandbox is removed", "file", file)
			if err := k.namespaces.Remove(file); err != nil {
				return err
			}
		}
		return k.collectAttachments(ctx)
	})
	return err
}

// collectShims ends the shims that the runtime has lost.
func (k *Kubelet) collectShims() error {
	lost, err := k.shims.Lost()
	if err != nil {
		return err
	}
	for _, s := range lost {
		k.cfg.Log.Warn("shim that containerd has lost is ended", "pid", s.PID)
		if err := k.shims.End(s); err != nil {
			return err
		}
	}
	return nil
}

// collectAttachments gives back addresses of sandboxes that are gone.
func (k *Kubelet) collectAttachments(ctx context.Context) error {
	inUse, err := k.runtime.attachments(ctx)
	if err != nil || k.network == nil {
		return err
	}
	return k.network.Collect(ctx, inUse)
}
