// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/scheduling"
)

// maxKept bounds what is kept, in nodes: the larger the cell, the fewer things.
const maxKept = 1 << 21

// keeper keeps what plugins compiled over the cell, up to date with the pods
// that come and go.
type keeper struct {
	byKey map[string]*kept
	turn  uint64
}

type kept struct {
	scheduling.Tally
	at         cell.Mark
	namespaces uint64 // version of namespaces' labels
	used       uint64
}

func newKeeper() *keeper { return &keeper{byKey: map[string]*kept{}} }

// Keep implements scheduling.View.
func (v *view) Keep(key string, make func() scheduling.Tally) scheduling.Tally {
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
		c = &kept{Tally: make(), namespaces: namespaces}
		k.byKey[key] = c
		k.evict(len(v.Nodes()))
	}
	c.at = now
	k.turn++
	c.used = k.turn
	return c.Tally
}

// evict drops what has not been used for longest: half at a time, so that the
// cost of looking is shared by many.
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
