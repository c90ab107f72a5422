// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"context"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"keelson.dev/keelson/pkg/follow"
)

const (
	// workers is how many sources are processed concurrently.
	workers = 2
	// checkInterval is how often all podCertificate sources are processed, because a renewal may be
	// due or a request may be lost.
	checkInterval = time.Minute
	// The delay after a failure grows from firstRetry to lastRetry.
	firstRetry = 500 * time.Millisecond
	lastRetry  = checkInterval
)

// follower watches the node's PodCertificateRequests and processes the podCertificate sources of a
// Manager. It exists while the Manager has sources.
type follower struct {
	m        *Manager
	queue    workqueue.TypedRateLimitingInterface[key]
	requests *follow.Cache[certificatesv1.PodCertificateRequest, outcome]
}

func newFollower(m *Manager) *follower {
	f := &follower{m: m}
	f.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[key]{Clock: m.cfg.Clock})
	f.requests = follow.NewCache(follow.Config[certificatesv1.PodCertificateRequest, outcome]{
		Source: follow.Source(m.cfg.Requests.PodCertificateRequests(metav1.NamespaceAll), follow.Latest,
			follow.Fields(fields.OneTermEqualSelector("spec.nodeName", m.cfg.NodeName).String())),
		Keep: func(r *certificatesv1.PodCertificateRequest) *outcome {
			if len(m.keysOf(r.Spec.PodUID)) == 0 {
				return nil // a request for a pod that has ended
			}
			return readOutcome(r)
		},
		Changed: func(_ types.NamespacedName, _, current *outcome) {
			if current != nil {
				f.enqueue(m.keysOf(current.pod))
			}
		},
		Clock: m.cfg.Clock, Log: m.cfg.Log,
	})
	return f
}

func (f *follower) enqueue(keys []key) {
	for _, k := range keys {
		f.queue.Add(k)
	}
}

// run processes the sources (podCertificate sources of projected volumes) until ctx ends or the
// Manager has no sources.
func (f *follower) run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	defer f.queue.ShutDown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { f.requests.Run(ctx) })
	for range workers {
		parts.Go(func() { f.work(ctx) })
	}
	ticker := f.m.cfg.Clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for keys := f.m.keys(); len(keys) > 0; keys = f.m.keys() {
		f.enqueue(keys)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-f.m.wake:
		}
	}
}

func (f *follower) work(ctx context.Context) {
	for {
		k, shutdown := f.queue.Get()
		if shutdown {
			return
		}
		err := f.m.process(ctx, k, f.find)
		if err != nil && ctx.Err() == nil {
			f.m.cfg.Log.Warn("Failed to request a pod certificate", "pod", k.pod, "volume", k.volume, "err", err)
			f.queue.AddRateLimited(k)
		} else {
			f.queue.Forget(k)
		}
		f.queue.Done(k)
	}
}

// find returns the outcome of a request, or nil if the request does not exist. While the first list
// is not complete, a missing request counts as pending.
func (f *follower) find(name types.NamespacedName) *outcome {
	if o := f.requests.Get(name); o != nil {
		return o
	}
	select {
	case <-f.requests.Synced():
		return nil
	default:
		return &outcome{}
	}
}
