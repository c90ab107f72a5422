// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// state is how a zone is.
type state int

const (
	// normal: most of its nodes are ready.
	normal state = iota
	// partial: so many are not that something else than nodes may be broken.
	partial
	// full: none is ready.
	full
)

// partialLeast is how many nodes must not be ready for a zone to be in partial disruption.
const partialLeast = 3

// stateOf is the state of a zone with so many nodes.
func stateOf(ready, notReady int, threshold float64) state {
	switch {
	case ready == 0 && notReady > 0:
		return full
	case notReady >= partialLeast && float64(notReady)/float64(notReady+ready) >= threshold:
		return partial
	}
	return normal
}

// zoneOf names a node's zone by its region and zone; a cluster without zones is one.
func zoneOf(n *v1.Node) string {
	return n.Labels[v1.LabelTopologyRegion] + ":" + n.Labels[v1.LabelTopologyZone]
}

// zones say from how many nodes pods may be evicted: in each zone at a rate that
// gets smaller when much of it is not ready, and nowhere when no node at all is
// ready, because then it is more likely that the control plane is cut off. They
// are safe for concurrent use.
type zones struct {
	options controller.Evictions

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
	disabled bool // no node is ready
}

func newZones(o controller.Evictions) *zones {
	return &zones{options: o, limiters: map[string]*rate.Limiter{}}
}

// update takes over the state of the nodes. It reports whether all nodes had
// been silent until now and some are not any more.
func (z *zones) update(nodes []*v1.Node, now time.Time) (recovered bool) {
	type count struct{ ready, notReady int }
	counts := map[string]count{}
	for _, n := range nodes {
		c := counts[zoneOf(n)]
		if controller.NodeReady(n).Status == v1.ConditionTrue {
			c.ready++
		} else {
			c.notReady++
		}
		counts[zoneOf(n)] = c
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	before := z.disabled
	z.disabled = len(counts) > 0
	for zone := range z.limiters {
		if _, there := counts[zone]; !there {
			delete(z.limiters, zone)
		}
	}
	for zone, c := range counts {
		s := stateOf(c.ready, c.notReady, z.options.Threshold)
		z.disabled = z.disabled && s == full
		limit := rate.Limit(z.options.Rate)
		if s == partial {
			limit = 0
			if c.ready+c.notReady > z.options.LargeZone {
				limit = rate.Limit(z.options.SecondaryRate)
			}
		}
		if z.limiters[zone] == nil {
			z.limiters[zone] = rate.NewLimiter(limit, 1)
		}
		z.limiters[zone].SetLimitAt(now, limit)
	}
	return before && !z.disabled
}

// stopped tells whether no pod may be evicted from any node.
func (z *zones) stopped() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.disabled
}

// take asks for one more node in the zone of n from which pods may be evicted.
func (z *zones) take(n *v1.Node, now time.Time) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	l := z.limiters[zoneOf(n)]
	return !z.disabled && l != nil && l.Limit() > 0 && l.AllowN(now, 1)
}
