// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/proxy/conntrack"
	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/pkg/proxy/service"
)

// cleaner deletes stale UDP flows after the tables have changed, beside the loop: a
// walk of all flows of a busy node takes longer than a change may wait.
type cleaner struct {
	table   *conntrack.Table
	clock   clock.Clock
	metrics *metrics
	log     *slog.Logger
	held    work // of the loop: changes that the kernel does not have yet

	wake chan struct{} // capacity 1
	mu   sync.Mutex
	todo work // guarded by mu; the newest state of each port counts
}

type work map[ruleset.Family]map[ruleset.Name]conntrack.Service

func newCleaner(t *conntrack.Table, c clock.Clock, m *metrics, log *slog.Logger) *cleaner {
	return &cleaner{table: t, clock: c, metrics: m, log: log, held: work{}, todo: work{}, wake: make(chan struct{}, 1)}
}

func (w work) put(f ruleset.Family, n ruleset.Name, s conntrack.Service) {
	if w[f] == nil {
		w[f] = map[ruleset.Name]conntrack.Service{}
	}
	w[f][n] = s
}

// hold notes the UDP ports of a service that a change may leave stale flows of.
func (c *cleaner) hold(f ruleset.Family, old, plan *service.Plan) {
	for _, p := range plan.Ports {
		if p.Family() != f || p.VIP.Protocol != ruleset.UDP {
			continue
		}
		now := conntrack.Service{Frontends: p.Frontends(), Serving: slices.Collect(p.Serving.All())}
		before := old.Port(f, p.Name)
		if before == nil || !slices.Equal(before.Frontends(), now.Frontends) || leavesStale(slices.Collect(before.Serving.All()), now.Serving) {
			c.held.put(f, p.Name, now)
		}
	}
}

// leavesStale: somebody has gone, or the first one has come.
func leavesStale(old, now []netip.AddrPort) bool {
	if len(now) == 0 {
		return false
	}
	return len(old) == 0 || slices.ContainsFunc(old, func(e netip.AddrPort) bool { return !slices.Contains(now, e) })
}

// release hands over what was held, now that the kernel sends nothing more the old way.
func (c *cleaner) release() {
	if len(c.held) == 0 {
		return
	}
	c.mu.Lock()
	for f, services := range c.held {
		for n, s := range services {
			c.todo.put(f, n, s)
		}
	}
	c.mu.Unlock()
	c.held = work{}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run cleans until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		todo := c.todo
		c.todo = work{}
		c.mu.Unlock()
		for f, services := range todo {
			c.clean(f, services)
		}
	}
}

func (c *cleaner) clean(f ruleset.Family, services map[ruleset.Name]conntrack.Service) {
	list := make([]conntrack.Service, 0, len(services))
	for _, s := range services {
		list = append(list, s)
	}
	start := c.clock.Now()
	n, err := c.table.Clean(f, list)
	if err != nil {
		c.log.Error("Stale flows not deleted", "family", f.String(), "err", err)
	}
	c.metrics.conntrack.WithLabelValues(f.String()).Observe(c.clock.Since(start).Seconds())
	c.metrics.conntrackDeleted.WithLabelValues(f.String()).Add(float64(n))
}
