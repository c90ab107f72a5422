// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	clocktesting "k8s.io/utils/clock/testing"
)

// crowd stands for the kubelets of many nodes. For nodes in broken it returns an error. It
// counts requests.
type crowd struct {
	mu     sync.Mutex
	asked  map[string]int
	broken map[string]bool
}

func (c *crowd) Summary(_ context.Context, node string) (*statsapi.Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[node]++
	if c.broken[node] {
		return nil, errors.New("no answer")
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: node}}, nil
}

// TestSummaries checks that concurrent and repeated requests cause one request to each kubelet per
// period of fresh, and that old answers are removed.
func TestSummaries(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	c := &crowd{asked: map[string]int{}, broken: map[string]bool{"n3": true}}
	s := &summaries{kubelets: c, clock: clk, byNode: map[string]*answer{}}
	var nodes []string
	for i := range 3 * asked {
		nodes = append(nodes, fmt.Sprint("n", i))
	}
	for round := 1; round <= 2; round++ {
		var askers sync.WaitGroup
		for range 8 {
			askers.Go(func() {
				got := s.all(t.Context(), nodes)
				if len(got) != len(nodes)-1 || got["n3"] != nil || got["n5"].Node.NodeName != "n5" {
					t.Errorf("%d answers", len(got))
				}
			})
		}
		askers.Wait()
		for _, n := range nodes {
			if c.asked[n] != round {
				t.Fatalf("%s was asked %d times, want %d", n, c.asked[n], round)
			}
		}
		clk.Step(fresh)
	}
	if _, err := s.of(t.Context(), "n1"); err != nil || len(s.byNode) != 1 {
		t.Errorf("%d answers are kept, %v", len(s.byNode), err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.of(gone, "n9"); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
}
