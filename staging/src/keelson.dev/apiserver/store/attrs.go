// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"hash/maphash"
	"sync"
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
	seed maphash.Seed

	mu             sync.Mutex
	labels, fields map[uint64]map[string]string // by hash; of two with one hash, the later
}

func newAttrSets() *attrSets {
	return &attrSets{seed: maphash.MakeSeed(), labels: map[uint64]map[string]string{}, fields: map[uint64]map[string]string{}}
}

// shrink makes attributes small that are to be kept: they share what equal ones
// have, those of prev before all, which may be nil.
func (s *attrSets) intern(a Attrs, prev *Record) Attrs {
	var was Attrs
	if prev != nil {
		was = prev.Attrs
	}
	a.Labels = s.share(s.labels, a.Labels, was.Labels, func(string, string) bool { return true })
	a.Fields = s.share(s.fields, a.Fields, was.Fields, telling)
	return a
}

// telling leaves out what the key has, and fields without a value, which are
// selected by the same terms as those that are not there.
func telling(k, v string) bool { return v != "" && k != nameField && k != namespaceField }

// share returns was, or the set of sets, that equals what keep wants of set.
func (s *attrSets) share(sets map[uint64]map[string]string, set, was map[string]string, keep func(k, v string) bool) map[string]string {
	n, hash := 0, uint64(0)
	for k, v := range set {
		if keep(k, v) {
			n++
			hash += (maphash.String(s.seed, k)*hashStep + maphash.String(s.seed, v)) * hashStep
		}
	}
	switch {
	case n == 0:
		return nil
	case equalPart(was, set, n, keep):
		return was
	case n > sharedSize:
		return part(set, n, keep)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := sets[hash]; equalPart(known, set, n, keep) {
		return known
	}
	if len(sets) >= attrsKept {
		clear(sets)
	}
	sets[hash] = part(set, n, keep)
	return sets[hash]
}

// hashStep tells a key from a value, and what belongs together from what does not.
const hashStep = 0x9e3779b97f4a7c15

// equalPart reports whether known is the n entries of set that keep wants.
func equalPart(known, set map[string]string, n int, keep func(k, v string) bool) bool {
	if len(known) != n {
		return false
	}
	for k, v := range set {
		if !keep(k, v) {
			continue
		}
		if have, ok := known[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// part returns the n entries of set that keep wants.
func part(set map[string]string, n int, keep func(k, v string) bool) map[string]string {
	if n == len(set) {
		return set
	}
	out := make(map[string]string, n)
	for k, v := range set {
		if keep(k, v) {
			out[k] = v
		}
	}
	return out
}
