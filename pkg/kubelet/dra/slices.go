// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"maps"
	"slices"
	"time"
)

// graceWithoutDriver is how long a driver can be unreachable before its ResourceSlices are deleted.
// A failed deletion is retried after retryFirst; the delay then grows up to retryMax.
const (
	graceWithoutDriver = 30 * time.Second
	retryFirst         = time.Second
	retryMax           = 5 * time.Minute
)

// allDrivers is passed instead of a driver's name to delete the slices of all drivers.
const allDrivers = ""

// usable starts the grace period of a driver if none of its processes can be reached, and ends the
// grace period otherwise. The caller holds mu.
func (m *Manager) usable(name string) {
	if slices.ContainsFunc(m.drivers[name], func(d *driver) bool { return d.up }) {
		delete(m.gone, name)
		return
	}
	if _, ok := m.gone[name]; !ok {
		m.gone[name] = m.cfg.Clock.Now().Add(graceWithoutDriver)
		m.wakeUp()
	}
}

func (m *Manager) wakeUp() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Run deletes the ResourceSlices of drivers that cannot be reached, until ctx ends. In this way, no
// pod is scheduled to the node for devices that cannot be prepared. At the beginning, Run deletes
// the slices of all drivers, because no driver has registered yet; drivers publish their slices
// again when they register.
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

// wipe deletes the slices of drivers whose grace period has ended. It returns the time at which it
// must be called again: when the next grace period ends, or when a failed deletion must be tried
// again. The zero time means that no driver is left.
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
			// The driver may have become reachable during the call.
			if _, still := m.gone[name]; err == nil || !still {
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
