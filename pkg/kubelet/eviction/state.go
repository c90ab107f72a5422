// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// state is what a Manager remembers from one check to the next.
type state struct {
	crossed map[int]time.Time // by index of the threshold: the time since which it has been crossed
	seen    map[v1.NodeConditionType]time.Time
}

// step updates the state with the observation o. It returns the pressure conditions that are true,
// and the indexes of the thresholds that require an eviction, in the order of thresholds. A
// condition stays true for the time hold after its threshold was last crossed.
func (s *state) step(now time.Time, thresholds []Threshold, o Observation,
	hold time.Duration) (map[v1.NodeConditionType]bool, []int) {
	crossed := map[int]time.Time{}
	var due []int
	for i := range thresholds {
		t := &thresholds[i]
		since, before := s.crossed[i]
		a, measured := o[t.Signal]
		if !measured || !t.crossed(a, before) {
			continue
		}
		if !before {
			since = now
		}
		crossed[i] = since
		s.seen[condition(t.Signal)] = now
		if now.Sub(since) >= t.Grace {
			due = append(due, i)
		}
	}
	s.crossed = crossed
	holds := map[v1.NodeConditionType]bool{}
	for c, at := range s.seen {
		if now.Sub(at) < hold || at.Equal(now) {
			holds[c] = true
		} else {
			delete(s.seen, c)
		}
	}
	return holds, due
}
