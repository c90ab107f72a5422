// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	topology "k8s.io/component-helpers/node/topology"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// state describes how many nodes of a zone are ready.
type state int

const (
	// normal means that most nodes are ready.
	normal state = iota
	// partial means that so many nodes are not ready that the cause may not be the nodes
	// themselves.
	partial
	// full means that no node is ready.
	full
)

// partialLeast is the minimum number of nodes in a zone that must not be ready for the state
// partial.
const partialLeast = 3

// stateOf returns the state of a zone, given the numbers of its nodes. threshold is the fraction of
// nodes that are not ready from which on the state is partial.
func stateOf(ready, notReady int, threshold float64) state {
	switch {
	case ready == 0 && notReady > 0:
		return full
	case notReady >= partialLeast && float64(notReady)/float64(notReady+ready) >= threshold:
		return partial
	}
	return normal
}

// excludeLabel is the label of nodes that do not count in the state of their zone, for example because they are
// turned off and on all the time.
const excludeLabel = "node.kubernetes.io/exclude-disruption"

// zoneOf returns the key of a node's zone, from its labels for region and zone. All nodes without
// these labels are in the same zone.
func zoneOf(n *v1.Node) string {
	return topology.GetZoneKey(n)
}

// zones limits how many nodes per second get taints that evict pods. Each zone has a rate, which is
// lower while many of the zone's nodes are not ready. While no node in the cluster is ready, no
// pods are evicted, because the control plane is probably cut off from the nodes. zones is safe for
// concurrent use.
type zones struct {
	options controller.Evictions
	metrics *metrics

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
	disabled bool // true while no node is ready
}

func newZones(o controller.Evictions, m *metrics) *zones {
	return &zones{options: o, metrics: m, limiters: map[string]*rate.Limiter{}}
}

// update sets the rate of each zone from the present nodes. It returns true if no node was ready at
// the last update and some are ready now.
func (z *zones) update(nodes []*v1.Node, now time.Time) (recovered bool) {
	type count struct{ ready, notReady int }
	counts, total := map[string]count{}, count{}
	for _, n := range nodes {
		c := counts[zoneOf(n)]
		_, excluded := n.Labels[excludeLabel]
		switch {
		case excluded: // but its zone has a rate
		case controller.NodeReady(n).Status == v1.ConditionTrue:
			c.ready++
			total.ready++
		default:
			c.notReady++
			total.notReady++
		}
		counts[zoneOf(n)] = c
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	before := z.disabled
	z.disabled = stateOf(total.ready, total.notReady, z.options.Threshold) == full
	for zone := range z.limiters {
		if _, there := counts[zone]; !there {
			delete(z.limiters, zone)
			z.metrics.setZone(zone, 0, 0)
		}
	}
	for zone, c := range counts {
		z.metrics.setZone(zone, c.ready, c.notReady)
		s := stateOf(c.ready, c.notReady, z.options.Threshold)
		limit := rate.Limit(z.options.Rate)
		if s == partial {
			limit = 0
			if c.ready+c.notReady > z.options.LargeZone {
				limit = rate.Limit(z.options.SecondaryRate)
			}
		}
		if z.limiters[zone] == nil {
			z.limiters[zone] = rate.NewLimiter(limit, 1)
			z.metrics.evictions.WithLabelValues(zone).Add(0)
		}
		z.limiters[zone].SetLimitAt(now, limit)
	}
	return before && !z.disabled
}

// stopped reports whether no pod may be evicted from any node now.
func (z *zones) stopped() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.disabled
}

// take reports whether node n may get a taint that evicts its pods now. If so, it counts the node
// towards the rate of its zone.
func (z *zones) take(n *v1.Node, now time.Time) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	l := z.limiters[zoneOf(n)]
	return !z.disabled && l != nil && l.Limit() > 0 && l.AllowN(now, 1)
}
