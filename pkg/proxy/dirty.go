// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// dirty collects changes of API objects until the goroutine of Run takes them.
type dirty struct {
	*follow.Changes[batch]
	since time.Time // the start of the process; the delay of earlier changes is not measured
}

// batch is a set of changes. A service that has changed several times has one entry.
type batch struct {
	services map[types.NamespacedName]bool
	// triggers are the times at which the endpoints controller noticed the changes of pods that led
	// to changes of endpoints, by service. The controller writes them into the EndpointSlice.
	triggers map[types.NamespacedName]time.Time
	// cleaned are UDP frontends whose stale flows have been deleted.
	cleaned      map[ruleset.Family][]ruleset.Frontend
	node         bool
	serviceCIDRs bool
	svcs, slices int
}

func newDirty(since time.Time) *dirty {
	return &dirty{since: since, Changes: follow.NewChanges(func() batch {
		return batch{
			services: map[types.NamespacedName]bool{}, triggers: map[types.NamespacedName]time.Time{},
			cleaned: map[ruleset.Family][]ruleset.Frontend{},
		}
	})}
}

// noteCleaned records that the stale flows at these frontends have been deleted.
func (d *dirty) noteCleaned(f ruleset.Family, list []ruleset.Frontend) {
	if len(list) > 0 {
		d.Note(func(b *batch) { b.cleaned[f] = append(b.cleaned[f], list...) })
	}
}
