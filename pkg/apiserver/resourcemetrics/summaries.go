// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"sync"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
)

const (
	// fresh is how long a kubelet's summary is reused. askTimeout limits a request to a kubelet.
	fresh, askTimeout = 5 * time.Second, 5 * time.Second
	// asked is the maximum number of concurrent requests to kubelets for one client request.
	asked = 32
)

// Kubelets requests the stats summary of a node from its kubelet.
type Kubelets interface {
	Summary(ctx context.Context, node string) (*statsapi.Summary, error)
}

// summaries caches the recent stats summaries of kubelets.
type summaries struct {
	kubelets Kubelets
	clock    clock.Clock

	mu     sync.Mutex
	byNode map[string]*answer // guarded by mu
	swept  time.Time          // guarded by mu
}

// answer is the result of a request to a kubelet. The fields summary and err are set once the
// channel done is closed.
type answer struct {
	at      time.Time // start of the request
	done    chan struct{}
	summary *statsapi.Summary
	err     error
}

// of returns the summary of a node, from the cache or from its kubelet.
func (s *summaries) of(ctx context.Context, node string) (*statsapi.Summary, error) {
	a := s.answer(ctx, node)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.done:
		return a.summary, a.err
	}
}

func (s *summaries) answer(ctx context.Context, node string) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if a := s.byNode[node]; a != nil && now.Sub(a.at) < fresh {
		return a
	}
	s.sweep(now)
	a := &answer{at: now, done: make(chan struct{})}
	s.byNode[node] = a
	// Other client requests may wait for the summary too, so it is not canceled with this request.
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		a.summary, a.err = s.kubelets.Summary(ctx, node)
	}()
	return a
}

// sweep removes old answers, at most once in a period of fresh, so that answers of deleted nodes do
// not stay in memory. The caller holds mu.
func (s *summaries) sweep(now time.Time) {
	if now.Sub(s.swept) < fresh {
		return
	}
	s.swept = now
	for node, a := range s.byNode {
		if now.Sub(a.at) >= fresh {
			delete(s.byNode, node)
		}
	}
}

// all returns the summaries by node. It omits nodes whose kubelets do not answer.
func (s *summaries) all(ctx context.Context, nodes []string) map[string]*statsapi.Summary {
	out := make(map[string]*statsapi.Summary, len(nodes))
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := make(chan string)
	for range min(asked, len(nodes)) {
		workers.Go(func() {
			for node := range next {
				if summary, err := s.of(ctx, node); err == nil {
					mu.Lock()
					out[node] = summary
					mu.Unlock()
				}
			}
		})
	}
	for _, n := range nodes {
		next <- n
	}
	close(next)
	workers.Wait()
	return out
}
