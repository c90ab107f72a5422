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

// Scenario describes which controllers run, what users do, and what is checked at the end.
type Scenario struct {
	// Members are the controllers. They run in one process.
	Members []Member
	// Options are the controllers' options.
	Options controller.Options
	// Serve are the APIs that the server serves in addition to the default ones.
	Serve map[string]bool
	// Script does what users do. It returns when they are done.
	Script func(ctx context.Context, u *Users) error
	// Also runs in parallel until the end of the run. It may be nil.
	Also func(ctx context.Context, u *Users)
	// Kubelet sets the status of pods. If it is nil, pods stay pending.
	Kubelet Kubelet
	// Kinds are the resources whose objects are compared at the end.
	Kinds []schema.GroupVersionResource
	// Ignore removes those fields from an object that may differ between two runs. It may be nil.
	Ignore func(*unstructured.Unstructured)
	// Found are seeds with which this scenario failed in the past. They are always run.
	Found []uint64
	// Settle is how long to wait from the end of the faults until the controllers must be done. The
	// default is 6 minutes, because a controller waits up to 5 minutes until its cache shows a
	// write.
	Settle time.Duration
	// Check checks more than the state of the objects at the end. It may be nil.
	Check func(ctx context.Context, u *Users) error
}

// Users gives scripts access to the cluster, as an administrator.
type Users struct {
	*Cell
}

// Now returns the virtual time.
func (u *Users) Now() time.Time { return u.clock.Now() }

// Wait waits until the virtual duration d has passed.
func (u *Users) Wait(d time.Duration) { u.settle(d) }

// Outcome is the result of a run.
type Outcome struct {
	// State is the state of the cluster at the end, with one line for each object.
	State []string
	// Restless is the number of writes that the controllers sent after they should have been done.
	Restless int64
	// Faults are the faults that occurred, and Trace the writes, one line each.
	Faults, Trace []string
}

const (
	defaultSettle = 6 * time.Minute
	// quiet is how long Run counts writes after the controllers should be done.
	quiet = 3 * time.Minute
)

// Run runs a scenario with the faults for a seed. With seed 0 there are no faults.
func (c *Cell) Run(s Scenario, seed uint64, log *slog.Logger) (Outcome, error) {
	c.reset()
	c.settle(time.Second) // time for the server to notice that the old state was deleted
	faults := NewFaults(c.clock, seed)
	var out Outcome
	var mu sync.Mutex
	began := c.clock.Now()
	trace := func(line string) {
		c.recordRevision()
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
		failure = c.runProcesses(ctx, func() *process {
			p := &process{cell: c, faults: faults, members: s.Members, options: s.Options, log: log, trace: trace}
			p.options.Workers = max(p.options.Workers, 2)
			p.options.Autoscaling, p.options.Periods, p.options.Slices = controller.DefaultAutoscaling(),
				controller.DefaultPeriods(), controller.DefaultSlices()
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
	c.settle(maxStaleness) // faults may have an effect for this long after they occurred
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
