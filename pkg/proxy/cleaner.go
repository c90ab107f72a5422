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

// The delay before the first retry, and the maximum number of attempts, if listing or deleting
// flows fails. After the last attempt the cleaner drops the work, so that the amount of queued work
// stays bounded. A later change of the same frontends queues it again.
const (
	firstCleanRetry = time.Second
	cleanAttempts   = 6
)

// cleaner deletes stale UDP flows after the nftables tables have changed. It runs in a goroutine of
// its own, because listing all flows of a busy node takes too long for the goroutine that applies
// changes.
type cleaner struct {
	table   *conntrack.Table
	clock   clock.Clock
	metrics *metrics
	log     *slog.Logger
	// cleaned is called with frontends after their flows were checked.
	cleaned func(ruleset.Family, []ruleset.Frontend)

	wake    chan struct{} // capacity 1
	mu      sync.Mutex
	todo    work // frontends to check next, with their newest claims (which flows are valid); guarded by mu
	running work // frontends that round checks now; guarded by mu; its maps are never modified, only replaced
	// held are the frontends in running whose claims have become invalid since the check began;
	// guarded by mu. A claim says which flows at a frontend are valid.
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

func newCleaner(t *conntrack.Table, c clock.Clock, m *metrics, log *slog.Logger,
	cleaned func(ruleset.Family, []ruleset.Frontend)) *cleaner {
	return &cleaner{table: t, clock: c, metrics: m, log: log, cleaned: cleaned, todo: work{},
		held: heldFrontends{}, wake: make(chan struct{}, 1)}
}

// merge adds claims to the work. A claim says which flows at a frontend are valid. The existing
// claim of a frontend is replaced only if newer is true.
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

// put queues the frontends whose flows must be checked. The kernel must already have the new rules,
// so that no new flow follows the old rules.
func (c *cleaner) put(f ruleset.Family, claims conntrack.Claims) {
	c.mu.Lock()
	c.todo.merge(f, claims, true)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// hold makes the claims of frontends invalid: what they say about valid flows is outdated. The
// cleaner then deletes no flow at these frontends until the method put is called with new claims.
// Otherwise it would delete a flow that starts under the new rules, because that flow looks stale
// according to the old claims.
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

// unlessHeld returns a guard for Table.Clean. It runs the deletion of a flow unless the claim of
// one of the flow's frontends has become invalid.
func (c *cleaner) unlessHeld(f ruleset.Family) func(func(), ...ruleset.Frontend) {
	return func(del func(), list ...ruleset.Frontend) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.ContainsFunc(list, func(at ruleset.Frontend) bool { return c.held[f][at] }) {
			del()
		}
	}
}

// idle reports whether no check of the flows at a frontend is queued or in progress.
func (c *cleaner) idle(f ruleset.Family, at ruleset.Frontend) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.todo[f].Frontends[at]
	_, runs := c.running[f].Frontends[at]
	return !waits && !runs
}

// run checks queued frontends and deletes their stale flows until ctx ends.
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

// round checks the flows at all queued frontends. It returns false if some of them must be checked
// again. If the argument last is true, it does not retry and returns true.
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
		c.log.Error("Failed to delete stale conntrack entries", "family", f.String(), "err", err)
	}
	c.metrics.conntrack.WithLabelValues(f.String()).Observe(c.clock.Since(start).Seconds())
	c.metrics.conntrackDeleted.WithLabelValues(f.String()).Add(float64(n))
	return err == nil
}

// holdFlows makes the cleaner's claims (which say which flows are valid) invalid for the frontends
// that the next changes affect.
func (p *Proxy) holdFlows() {
	for _, f := range p.families {
		p.cleaner.hold(f.Family, f.table.Suspects())
	}
}

// cleanFlows queues the frontends whose UDP flows may be stale. The kernel must have the current
// nftables tables.
func (p *Proxy) cleanFlows() {
	for _, f := range p.families {
		suspects := f.table.Suspects()
		if len(suspects) == 0 {
			continue
		}
		nodePorts, err := p.nodePortAddresses(f)
		if err != nil {
			p.log.Error("Failed to list local addresses", "family", f.String(), "err", err)
			continue // f.table keeps the suspects, so these frontends are checked after the next change
		}
		f.table.ForgetSuspects()
		p.cleaner.put(f.Family, f.claims(suspects, nodePorts))
	}
}

// claims returns for each frontend which flows are valid. For a node port, which has the
// unspecified address, it adds the frontends with the same port at one of the node's addresses,
// because they take precedence over the node port.
func (f *family) claims(list []ruleset.Frontend, nodePorts []netip.Addr) conntrack.Claims {
	out := conntrack.Claims{Frontends: make(map[ruleset.Frontend]conntrack.Claim, len(list)),
		NodePorts: map[netip.Addr]bool{}}
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

// nodePortAddresses returns the local addresses on which node ports are served.
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

// forgetFlows drops departed frontends, which no port has any more, from the nftables tables after
// their flows were checked. It keeps those for which another check is queued.
func (p *Proxy) forgetFlows(cleaned map[ruleset.Family][]ruleset.Frontend) {
	for _, f := range p.families {
		for _, at := range cleaned[f.Family] {
			if p.cleaner.idle(f.Family, at) {
				f.table.Forget(at)
			}
		}
	}
}
