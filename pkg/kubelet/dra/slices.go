// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"maps"
	"slices"
	"time"
)

// A driver that cannot be reached for graceWithoutDriver has its ResourceSlices removed; what could
// not be removed is tried again after retryFirst, and ever more rarely until retryMax.
const (
	graceWithoutDriver = 30 * time.Second
	retryFirst         = time.Second
	retryMax           = 5 * time.Minute
)

// allDrivers stands for those of the whole node.
const allDrivers = ""

// usable has the time begin, or end, after which nothing is offered any more that a driver has.
// The caller holds mu.
func (m *Manager) usable(name string) {
	if slices.ContainsFunc(m.drivers[name], func(d *driver) bool { return d.up }) {
		delete(m.gone, name)
		return
	}
	if _, ok := m.gone[name]; !ok {
		m.gone[name] = m.cfg.Clock.Now().Add(graceWithoutDriver)
		m.poke()
	}
}

func (m *Manager) poke() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Run removes the ResourceSlices of drivers that are not there, so that no pod is sent to the
// node for what nobody can prepare, until ctx ends: those of the whole node at first, as no
// driver has registered yet. Drivers that come publish theirs anew.
func (m *Manager) Run(ctx context.Context) error {
	defer m.closeAll()
	m.mu.Lock()
	m.gone[allDrivers] = m.cfg.Clock.Now()
	m.mu.Unlock()
	failures := 0
	for {
		next := m.wipe(ctx, &failures)
		var due <-chan time.Time
		stop := func() bool { return true }
		if !next.IsZero() {
			t := m.cfg.Clock.NewTimer(max(next.Sub(m.cfg.Clock.Now()), 0))
			due, stop = t.C(), t.Stop
		}
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-due:
		case <-m.changed:
		}
		stop()
	}
}

// wipe removes what is due and returns when there is more to do.
func (m *Manager) wipe(ctx context.Context, failures *int) time.Time {
	m.mu.Lock()
	gone := maps.Clone(m.gone)
	m.mu.Unlock()
	now, next := m.cfg.Clock.Now(), time.Time{}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		at := gone[name]
		if !at.After(now) {
			err := m.cfg.Wipe(ctx, name)
			m.mu.Lock()
			if _, still := m.gone[name]; err == nil || !still { // it may have come back meanwhile
				delete(m.gone, name)
				m.mu.Unlock()
				*failures = 0
				continue
			}
			at = now.Add(min(retryFirst<<min(*failures, 10), retryMax))
			m.gone[name] = at
			m.mu.Unlock()
			*failures++
			m.cfg.Log.Info("Failed to delete ResourceSlices, will retry", "driver", name, "err", err)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}
