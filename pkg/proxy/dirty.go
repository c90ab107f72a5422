// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// dirty is what has changed since the owner of the state last looked. It has one
// entry for a service however often that changes, so it is no larger than the cluster.
type dirty struct {
	wake  chan struct{} // capacity 1
	since time.Time     // changes that began earlier are not measured

	mu    sync.Mutex
	batch // guarded by mu
}

// batch is a set of changes.
type batch struct {
	services map[types.NamespacedName]bool
	// triggers are when changes of endpoints began, by service, as told by the controller
	// that wrote them.
	triggers map[types.NamespacedName]time.Time
	// cleaned are UDP frontends of which no stale flow is left.
	cleaned      map[ruleset.Family][]ruleset.Frontend
	node         bool
	serviceCIDRs bool
	svcs, slices int
}

func newDirty(since time.Time) *dirty {
	d := &dirty{wake: make(chan struct{}, 1), since: since}
	d.take()
	return d
}

// note adds to the changes and wakes the owner.
func (d *dirty) note(f func(*batch)) {
	d.mu.Lock()
	f(&d.batch)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // it has not taken the last ones yet
	}
}

// take returns the changes and forgets them.
func (d *dirty) take() batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.batch
	d.batch = batch{
		services: map[types.NamespacedName]bool{}, triggers: map[types.NamespacedName]time.Time{}, cleaned: map[ruleset.Family][]ruleset.Frontend{},
	}
	return b
}

// noteCleaned notes that no stale flow is left of frontends.
func (d *dirty) noteCleaned(f ruleset.Family, list []ruleset.Frontend) {
	if len(list) > 0 {
		d.note(func(b *batch) { b.cleaned[f] = append(b.cleaned[f], list...) })
	}
}
