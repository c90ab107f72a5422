// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/proxy/conntrack"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Retries after flows could not be listed or deleted. After the last one the proxy gives up
// until the frontends change again, so that what is to do stays bounded.
const (
	firstCleanRetry = time.Second
	cleanAttempts   = 6
)

// cleaner deletes stale UDP flows after the tables have changed, beside the loop: a
// walk of all flows of a busy node takes longer than a change may wait.
type cleaner struct {
	table   *conntrack.Table
	clock   clock.Clock
	metrics *metrics
	log     *slog.Logger
	// cleaned is called with frontends whose flows have been looked at.
	cleaned func(ruleset.Family, []ruleset.Frontend)

	wake    chan struct{} // capacity 1
	mu      sync.Mutex
	todo    work // guarded by mu; the newest claim of each frontend counts
	running work // guarded by mu; only replaced
	// held are frontends of running whose claims are no longer true; guarded by mu.
	held heldFrontends
}

type heldFrontends map[ruleset.Family]map[ruleset.Frontend]bool

func (h heldFrontends) add(f ruleset.Family, at ruleset.Frontend) {
	if h[f] == nil {
		h[f] = map[ruleset.Frontend]bool{}
	}
	h[f][at] = true
}

type work map[ruleset.Family]conntrack.Claims

func newCleaner(t *conntrack.Table, c clock.Clock, m *metrics, log *slog.Logger, cleaned func(ruleset.Family, []ruleset.Frontend)) *cleaner {
	return &cleaner{table: t, clock: c, metrics: m, log: log, cleaned: cleaned, todo: work{}, held: heldFrontends{}, wake: make(chan struct{}, 1)}
}

// merge adds claims, which take precedence over those that are there if newer.
func (w work) merge(f ruleset.Family, c conntrack.Claims, newer bool) {
	have, ok := w[f]
	if !ok {
		have = conntrack.Claims{Frontends: map[ruleset.Frontend]conntrack.Claim{}, NodePorts: c.NodePorts}
	}
	if newer {
		have.NodePorts = c.NodePorts
	}
	for at, claim := range c.Frontends {
		if _, ok := have.Frontends[at]; newer || !ok {
			have.Frontends[at] = claim
		}
	}
	w[f] = have
}

// put queues the frontends whose flows the cleaner has to check. The kernel must have the new rules
// already, so that no new flow uses the old ones.
func (c *cleaner) put(f ruleset.Family, claims conntrack.Claims) {
	c.mu.Lock()
	c.todo.merge(f, claims, true)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// hold drops what is known of frontends. From now on no flow at them is deleted until put is called
// with them: a flow that begins by the rules to come would be stale by those before.
func (c *cleaner) hold(f ruleset.Family, list []ruleset.Frontend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range list {
		delete(c.todo[f].Frontends, at)
		if c.running != nil {
			c.held.add(f, at)
		}
	}
}

// unlessHeld makes a deletion if what is known of the frontends is still true.
func (c *cleaner) unlessHeld(f ruleset.Family) func(func(), ...ruleset.Frontend) {
	return func(del func(), list ...ruleset.Frontend) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.ContainsFunc(list, func(at ruleset.Frontend) bool { return c.held[f][at] }) {
			del()
		}
	}
}

// idle reports whether flows at a frontend are not going to be looked at.
func (c *cleaner) idle(f ruleset.Family, at ruleset.Frontend) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.todo[f].Frontends[at]
	_, runs := c.running[f].Frontends[at]
	return !waits && !runs
}

// run cleans until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	retry := c.clock.NewTimer(firstCleanRetry)
	retry.Stop()
	defer retry.Stop()
	attempts := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-retry.C():
		}
		if c.round(attempts+1 == cleanAttempts) {
			attempts = 0
			continue
		}
		attempts++
		retry.Reset(firstCleanRetry << attempts)
	}
}

// round does what there is to do. It returns false if some of it is to be tried again, which
// never is after the last attempt.
func (c *cleaner) round(last bool) bool {
	c.mu.Lock()
	c.running, c.todo = c.todo, work{}
	c.mu.Unlock()
	all, done := c.running, work{}
	ok := true
	for f, claims := range all {
		if c.clean(f, claims) || last {
			done[f] = claims
			continue
		}
		ok = false
	}
	c.mu.Lock()
	for f, claims := range all {
		if _, cleaned := done[f]; !cleaned {
			maps.DeleteFunc(claims.Frontends, func(at ruleset.Frontend, _ conntrack.Claim) bool { return c.held[f][at] })
			c.todo.merge(f, claims, false)
		}
	}
	c.running = nil
	clear(c.held)
	c.mu.Unlock()
	for f, claims := range done {
		c.cleaned(f, slices.Collect(maps.Keys(claims.Frontends)))
	}
	return ok
}

func (c *cleaner) clean(f ruleset.Family, claims conntrack.Claims) bool {
	start := c.clock.Now()
	n, err := c.table.Clean(f, claims, c.unlessHeld(f))
	if err != nil {
		c.log.Error("Stale flows not deleted", "family", f.String(), "err", err)
	}
	c.metrics.conntrack.WithLabelValues(f.String()).Observe(c.clock.Since(start).Seconds())
	c.metrics.conntrackDeleted.WithLabelValues(f.String()).Add(float64(n))
	return err == nil
}

// holdFlows keeps flows from being deleted by claims that the changes to come make untrue.
func (p *Proxy) holdFlows() {
	for _, f := range p.families {
		p.cleaner.hold(f.Family, f.table.Suspects())
	}
}

// cleanFlows hands the frontends whose flows may be stale to the cleaner. The kernel has
// the tables as they are now.
func (p *Proxy) cleanFlows() {
	for _, f := range p.families {
		suspects := f.table.Suspects()
		if len(suspects) == 0 {
			continue
		}
		nodePorts, err := p.nodePortAddresses(f)
		if err != nil {
			p.log.Error("Local addresses not listed", "family", f.String(), "err", err)
			continue // the frontends stay suspect until the next change
		}
		f.table.ForgetSuspects()
		p.cleaner.put(f.Family, f.claims(suspects, nodePorts))
	}
}

// claims are what is right at the frontends, and at those that take their place at the
// addresses with node ports: a frontend at such an address goes before a node port.
func (f *family) claims(list []ruleset.Frontend, nodePorts []netip.Addr) conntrack.Claims {
	out := conntrack.Claims{Frontends: make(map[ruleset.Frontend]conntrack.Claim, len(list)), NodePorts: map[netip.Addr]bool{}}
	for _, a := range nodePorts {
		out.NodePorts[a] = true
	}
	for _, at := range list {
		serving, ok := f.table.Serving(at)
		switch {
		case at.Addr.IsUnspecified():
			for _, a := range nodePorts {
				own := ruleset.Frontend{Addr: a, Protocol: at.Protocol, Port: at.Port}
				if serving, ok := f.table.Serving(own); ok {
					out.Frontends[own] = conntrack.Claim{Serving: serving}
				}
			}
		case !ok && out.NodePorts[at.Addr]:
			serving, ok = f.table.Serving(ruleset.Frontend{Addr: f.Unspecified(), Protocol: at.Protocol, Port: at.Port})
		}
		out.Frontends[at] = conntrack.Claim{Serving: serving, Departed: !ok}
	}
	return out
}

// nodePortAddresses are the addresses of this node at which it has node ports, as the rules see it.
func (p *Proxy) nodePortAddresses(f *family) ([]netip.Addr, error) {
	local, err := p.cleaner.table.Local(f.Family)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range local {
		if !a.IsLoopback() && p.hasNodePorts(a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// forgetFlows drops frontends that have departed, and of which no flow is left, from the tables.
func (p *Proxy) forgetFlows(cleaned map[ruleset.Family][]ruleset.Frontend) {
	for _, f := range p.families {
		for _, at := range cleaned[f.Family] {
			if p.cleaner.idle(f.Family, at) {
				f.table.Forget(at)
			}
		}
	}
}
