// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// maxKept limits how many tallies (counts that plugins keep for all nodes) are kept: their number
// times the number of nodes is at most maxKept.
const maxKept = 1 << 21

// keeper caches tallies. A tally has counts of pods by node or topology domain, for a plugin. The
// keeper updates it as pods are added and removed.
type keeper struct {
	byKey map[string]*kept
	turn  uint64
}

type kept struct {
	scheduling.Tally
	at         cell.Mark
	namespaces uint64 // value of namespacesChanged when the tally was made
	used       uint64
}

func newKeeper() *keeper { return &keeper{byKey: map[string]*kept{}} }

// Keep implements scheduling.View.
func (v *view) Keep(key string, newTally func() scheduling.Tally) scheduling.Tally {
	k, now, namespaces := v.keeper, v.Now(), v.sources.namespacesChanged.Load()
	c := k.byKey[key]
	if c != nil {
		changes, ok := v.Since(c.at)
		if ok && c.at.Shape == now.Shape && c.namespaces == namespaces {
			c.follow(changes)
		} else {
			c = nil
		}
	}
	if c == nil {
		c = &kept{Tally: newTally(), namespaces: namespaces}
		k.byKey[key] = c
		k.evict(len(v.Nodes()))
	}
	c.at = now
	k.turn++
	c.used = k.turn
	return c.Tally
}

// evict drops the least recently used tallies if there are too many. It drops about half of the
// limit at once, so that its scan of all tallies is rare.
func (k *keeper) evict(nodes int) {
	limit := max(maxKept/max(nodes, 1), 64)
	if len(k.byKey) <= limit {
		return
	}
	for key, c := range k.byKey {
		if c.used > 0 && c.used+uint64(limit)/2 < k.turn {
			delete(k.byKey, key)
		}
	}
}

func (c *kept) follow(changes []cell.Change) {
	for _, ch := range changes {
		if ch.Pod != nil {
			c.Adjust(ch.Node, ch.Pod, ch.N)
		}
	}
}
