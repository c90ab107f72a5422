// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"hash/maphash"
	"sync"
)

// attrsKept is the maximum number of label sets that attrSets keeps, and the maximum number of
// field sets.
const attrsKept = 4096

// sharedSize is the maximum number of entries of a set that records share. Larger sets, such as the
// fields of events, are usually unique.
const sharedSize = 10

// Names of the fields with which field selectors can select objects of every kind.
const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// attrSets makes records share equal sets of labels and fields: the replicas of a workload have the
// same labels, and pods on one node have the same fields.
//
// Invariant: it contains at most attrsKept sets of labels and attrsKept sets of fields. The sets do
// not change.
type attrSets struct {
	seed maphash.Seed

	mu             sync.Mutex
	labels, fields map[uint64]map[string]string // sets by hash; a set replaces another one with the same hash
}

func newAttrSets() *attrSets {
	return &attrSets{seed: maphash.MakeSeed(), labels: map[uint64]map[string]string{},
		fields: map[uint64]map[string]string{}}
}

// intern returns attributes equal to a that share their memory with the attributes of prev, which
// may be nil, or with those of other records.
func (s *attrSets) intern(a Attrs, prev *Record) Attrs {
	var was Attrs
	if prev != nil {
		was = prev.Attrs
	}
	a.Labels = s.share(s.labels, a.Labels, was.Labels, func(string, string) bool { return true })
	a.Fields = s.share(s.fields, a.Fields, was.Fields, keepField)
	return a
}

// keepField reports whether a selectable field has to be kept. The name and the namespace are not
// kept, because the key has them. A field with an empty value is not kept, because it is selected
// in the same way as a missing field.
func keepField(k, v string) bool { return v != "" && k != nameField && k != namespaceField }

// share returns a set with the entries of set for which the function keep returns true. If the
// earlier set (the argument was) or a set in sets has these entries, share returns that set.
// Otherwise it makes a new one.
func (s *attrSets) share(sets map[uint64]map[string]string, set, was map[string]string,
	keep func(k, v string) bool) map[string]string {
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

// hashStep is an odd constant that makes the hash of a key and a value depend on their order.
const hashStep = 0x9e3779b97f4a7c15

// equalPart reports whether the set known consists of exactly the n entries of set for which the
// function keep returns true.
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

// part returns the n entries of set for which the function keep returns true.
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
