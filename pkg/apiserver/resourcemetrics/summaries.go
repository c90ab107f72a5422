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
	// fresh is how long what a kubelet said is good, and askTimeout how long one
	// may take to say it.
	fresh, askTimeout = 5 * time.Second, 5 * time.Second
	// asked bounds how many kubelets one request has asked at a time.
	asked = 32
)

// Kubelets ask the kubelet of a node.
type Kubelets interface {
	Summary(ctx context.Context, node string) (*statsapi.Summary, error)
}

// summaries are what kubelets have said lately.
type summaries struct {
	kubelets Kubelets
	clock    clock.Clock

	mu     sync.Mutex
	byNode map[string]*answer // guarded by mu
	swept  time.Time          // guarded by mu
}

// answer is what a kubelet says, once done is closed.
type answer struct {
	at      time.Time // when it was asked
	done    chan struct{}
	summary *statsapi.Summary
	err     error
}

// of asks a node's kubelet, unless it has been asked just now.
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
	// Others may wait for it as well: it does not end with this request.
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		a.summary, a.err = s.kubelets.Summary(ctx, node)
	}()
	return a
}

// sweep forgets what is no longer good, now and then, so that nodes that have gone do not
// stay. mu is held.
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

// all asks the kubelets of many nodes and returns what those said that answered, by node.
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
