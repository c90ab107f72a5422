// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package perturb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Scenario is what happens to a controller, and what is looked at in the end.
type Scenario struct {
	// Members are the controllers that run, as one process.
	Members []Member
	// Options are theirs.
	Options controller.Options
	// Serve are APIs that the server has beside those that it always has.
	Serve map[string]bool
	// Script is what users do. It returns when they are done.
	Script func(ctx context.Context, u *Users) error
	// Also is what goes on until the end of the run; nil: nothing.
	Also func(ctx context.Context, u *Users)
	// Kubelet says what becomes of pods; nil: nothing, they stay pending.
	Kubelet Kubelet
	// Kinds are those whose objects are compared.
	Kinds []schema.GroupVersionResource
	// Ignore takes from an object what may differ.
	Ignore func(*unstructured.Unstructured)
	// Found are seeds that have failed once, and are run always.
	Found []uint64
	// Settle is how long it takes at most until everything is done after the
	// last disturbance; 0: 6 minutes, of which 5 are how long a write is waited for
	// that the cache does not show.
	Settle time.Duration
	// Check is what has to hold in the end beside the state; nil: nothing.
	Check func(ctx context.Context, u *Users) error
}

// Users are those who use the cluster.
type Users struct {
	*Cell
}

// Now is the virtual time.
func (u *Users) Now() time.Time { return u.clock.Now() }

// Wait lets virtual time pass.
func (u *Users) Wait(d time.Duration) { u.settle(d) }

// Outcome is what came of a run.
type Outcome struct {
	// State is the cluster's, a line an object.
	State []string
	// Restless is how many writes there were when nothing was left to do.
	Restless int64
	// Faults is what was disturbed, Trace what was written.
	Faults, Trace []string
}

const (
	defaultSettle = 6 * time.Minute
	// quiet is how long a process is watched for writes after everything was done.
	quiet = 3 * time.Minute
)

// Run plays a scenario with the disturbances of a seed; 0 has none.
func (c *Cell) Run(s Scenario, seed uint64, log *slog.Logger) (Outcome, error) {
	c.reset()
	c.settle(time.Second) // the server sees the old state go
	faults := NewFaults(c.clock, seed)
	var out Outcome
	var mu sync.Mutex
	began := c.clock.Now()
	trace := func(line string) {
		c.note()
		mu.Lock()
		defer mu.Unlock()
		out.Trace = append(out.Trace, fmt.Sprintf("%v %s", c.clock.Since(began), line))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if s.Kubelet != nil {
		wg.Go(func() { (&nodes{cell: c, kubelet: s.Kubelet}).run(ctx) })
	}
	if s.Also != nil {
		wg.Go(func() { s.Also(ctx, &Users{c}) })
	}
	var last *process
	var failure error
	wg.Go(func() {
		failure = c.lives(ctx, func() *process {
			p := &process{cell: c, faults: faults, members: s.Members, options: s.Options, log: log, trace: trace}
			p.options.Workers = max(p.options.Workers, 2)
			p.options.Autoscaling, p.options.Periods, p.options.Slices = controller.DefaultAutoscaling(), controller.DefaultPeriods(), controller.DefaultSlices()
			mu.Lock()
			last = p
			mu.Unlock()
			return p
		})
	})
	writes := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return last.writes.Load()
	}
	if err := s.Script(ctx, &Users{c}); err != nil {
		out.Faults = faults.Log()
		return out, fmt.Errorf("script: %w", err)
	}
	c.settle(stale) // what was disturbed last may have its effect yet
	faults.End()
	settle := s.Settle
	if settle == 0 {
		settle = defaultSettle
	}
	c.settle(settle)
	before := writes()
	c.settle(quiet)
	out.Restless = writes() - before
	if s.Check != nil {
		if err := s.Check(ctx, &Users{c}); err != nil {
			return out, err
		}
	}
	var err error
	if out.State, err = c.state(ctx, s.Kinds, s.Ignore); err != nil {
		return out, err
	}
	out.Faults = faults.Log()
	cancel()
	wg.Wait()
	return out, failure
}
