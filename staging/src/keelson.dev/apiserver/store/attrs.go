// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// attrsKept is how many sets of labels are remembered.
const attrsKept = 4096

// attrSets has sets of labels that many objects have: the replicas of a workload
// are labelled alike.
type attrSets struct {
	mu   sync.Mutex
	sets map[string]labels.Set
	key  []byte // scratch
}

func newAttrSets() *attrSets { return &attrSets{sets: map[string]labels.Set{}} }

// shrink makes attributes small that are to be kept: they share what equal ones
// have, those of prev before all, which may be nil.
func (s *attrSets) shrink(a Attrs, prev *Record) Attrs {
	if prev != nil && maps.Equal(a.Labels, prev.Labels) {
		a.Labels = prev.Labels
	} else {
		a.Labels = s.share(a.Labels)
	}
	a.Fields = filled(a.Fields)
	if prev != nil && maps.Equal(a.Fields, prev.Attrs.Fields) {
		a.Fields = prev.Attrs.Fields
	}
	return a
}

// filled leaves out fields without a value, which are selected by the same terms
// as those that are not there.
func filled(set fields.Set) fields.Set {
	n := 0
	for _, v := range set {
		if v != "" {
			n++
		}
	}
	if n == len(set) {
		return set
	}
	out := make(fields.Set, n)
	for k, v := range set {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

func (s *attrSets) share(set labels.Set) labels.Set {
	if len(set) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = s.key[:0]
	for _, k := range slices.Sorted(maps.Keys(set)) {
		s.key = append(append(append(append(s.key, k...), 0), set[k]...), 0)
	}
	if known, ok := s.sets[string(s.key)]; ok {
		return known
	}
	if len(s.sets) >= attrsKept {
		clear(s.sets)
	}
	s.sets[string(s.key)] = set
	return set
}
