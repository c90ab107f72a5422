// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// dirty collects changes until the proxy's loop takes them.
type dirty struct {
	*follow.Changes[batch]
	since time.Time // the delay of changes that began earlier is not measured
}

// batch is a set of changes. It has one entry for each service, however often the service changes.
type batch struct {
	services map[types.NamespacedName]bool
	// triggers are the times at which changes of endpoints began, by service. The controller that
	// wrote the endpoints records them.
	triggers map[types.NamespacedName]time.Time
	// cleaned are UDP frontends that have no stale flow left.
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

// noteCleaned records that frontends have no stale flow left.
func (d *dirty) noteCleaned(f ruleset.Family, list []ruleset.Frontend) {
	if len(list) > 0 {
		d.Note(func(b *batch) { b.cleaned[f] = append(b.cleaned[f], list...) })
	}
}
