// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
)

// attrsKept is how many sets of each kind are remembered.
const attrsKept = 4096

// sharedSize is the largest set that is shared: those of events, which are the
// largest, are each of its own.
const sharedSize = 10

// The fields by which objects of every kind are selected.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// attrSets has sets of labels and of fields that many objects have: the replicas of
// a workload are labelled alike, and what runs on a node is found by the same terms.
type attrSets struct {
	mu     sync.Mutex
	labels map[string]map[string]string
	fields map[string]map[string]string
	key    []byte // scratch
}

func newAttrSets() *attrSets {
	return &attrSets{labels: map[string]map[string]string{}, fields: map[string]map[string]string{}}
}

// shrink makes attributes small that are to be kept: they share what equal ones
// have, those of prev before all, which may be nil.
func (s *attrSets) shrink(a Attrs, prev *Record) Attrs {
	if prev != nil && maps.Equal(a.Labels, prev.Labels) {
		a.Labels = prev.Labels
	} else {
		a.Labels = s.share(s.labels, a.Labels)
	}
	a.Fields = filled(a.Fields)
	if prev != nil && maps.Equal(a.Fields, prev.Attrs.Fields) {
		a.Fields = prev.Attrs.Fields
	} else {
		a.Fields = s.share(s.fields, a.Fields)
	}
	return a
}

// filled leaves out what the key has, and fields without a value, which are
// selected by the same terms as those that are not there.
func filled(set fields.Set) fields.Set {
	out := make(fields.Set, len(set))
	for k, v := range set {
		if v != "" && k != nameField && k != namespaceField {
			out[k] = v
		}
	}
	return out
}

// share returns the set of sets that equals set.
func (s *attrSets) share(sets map[string]map[string]string, set map[string]string) map[string]string {
	if len(set) == 0 {
		return nil
	}
	if len(set) > sharedSize {
		return set
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = s.key[:0]
	for _, k := range slices.Sorted(maps.Keys(set)) {
		for _, text := range [...]string{k, set[k]} {
			s.key = append(binary.AppendUvarint(s.key, uint64(len(text))), text...)
		}
	}
	if known, ok := sets[string(s.key)]; ok {
		return known
	}
	if len(sets) >= attrsKept {
		clear(sets)
	}
	sets[string(s.key)] = set
	return set
}
