// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package interpodaffinity

import "keelson.dev/scheduling"

// tally counts by the domains of one topology key.
type tally struct {
	topology *scheduling.Topology
	counts   []int64 // by domain
	nonzero  int     // of counts
}

func (t *tally) at(index int) int64 {
	if d := t.topology.Of[index]; d != scheduling.NoDomain {
		return t.counts[d]
	}
	return 0
}

// tallies are those of several keys.
type tallies []*tally

// of returns the tally of a key, a new one if there is none.
func (ts *tallies) of(view scheduling.View, key string) *tally {
	for _, t := range *ts {
		if t.topology.Key == key {
			return t
		}
	}
	topology := view.Topology(key)
	t := &tally{topology: topology, counts: make([]int64, topology.Domains)}
	*ts = append(*ts, t)
	return t
}

func (t *tally) add(index int, by int64) {
	d := t.topology.Of[index]
	if d == scheduling.NoDomain || by == 0 {
		return
	}
	before := t.counts[d]
	t.counts[d] += by
	switch {
	case before == 0:
		t.nonzero++
	case t.counts[d] == 0:
		t.nonzero--
	}
}

func (ts tallies) empty() bool {
	for _, t := range ts {
		if t.nonzero > 0 {
			return false
		}
	}
	return true
}
