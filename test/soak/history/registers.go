// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// Rules that [Registers] checks.
const (
	LostWrite  = "acknowledged write lost"
	TimeTravel = "older version after a newer one"
	Duplicate  = "write took effect twice"
	Phantom    = "value that nobody wrote"
	LateEffect = "write took effect when its condition no longer held"
	Untrue     = "read returned a different version than the write"
)

// Registers checks keys that have one writer, which performs one operation after the other, and any
// number of readers. ops must contain a read of each key at the end, because only such a read shows
// whether the last write was lost.
func Registers(ops []Op) []Violation {
	var v verdict
	keys, parts := byKey(ops)
	for _, key := range keys {
		newRegister(key, parts[key]).check(&v)
	}
	return v
}

// register is the history of one key.
type register struct {
	key string
	// changes has the writes and deletes that may have taken effect, in the writer's order. place
	// has, for each value, the index in changes of the write of this value.
	changes []*Op
	place   map[string]int
	// acked has the indexes in changes of the acknowledged changes.
	acked   []int
	refused map[string]*Op
	// deletes has the indexes in changes of the deletes.
	deletes []int
	reads   []*Op
}

func newRegister(key string, ops []*Op) *register {
	r := &register{key: key, place: map[string]int{}, refused: map[string]*Op{}}
	for _, o := range ops {
		switch {
		case o.Kind == Read:
			if o.Outcome == Acknowledged {
				r.reads = append(r.reads, o)
			}
		case o.Outcome == Refused:
			if o.write() {
				r.refused[o.Value] = o
			}
		default:
			at := len(r.changes)
			r.changes = append(r.changes, o)
			if o.write() {
				r.place[o.Value] = at
			} else {
				r.deletes = append(r.deletes, at)
			}
			if o.Outcome == Acknowledged {
				r.acked = append(r.acked, at)
			}
		}
	}
	return r
}

func (r *register) check(v *verdict) {
	var last *Op
	for _, at := range r.acked {
		o := r.changes[at]
		if !o.write() {
			continue
		}
		if last != nil && o.Version <= last.Version {
			v.addf(TimeTravel, r.key, "%v after %v", o, last)
		}
		last = o
	}
	for _, read := range r.reads {
		if read.Value == "" {
			r.checkAbsent(v, read)
		} else {
			r.checkPresent(v, read)
		}
	}
	r.checkVersions(v)
	r.checkReads(v)
}

// lastAcked returns the index of the last change that was acknowledged before t, or -1 if there is
// none.
func (r *register) lastAcked(t time.Duration) int {
	n := sort.Search(len(r.acked), func(i int) bool { return r.changes[r.acked[i]].End >= t })
	if n == 0 {
		return -1
	}
	return r.acked[n-1]
}

func (r *register) checkAbsent(v *verdict, read *Op) {
	last := r.lastAcked(read.Begin)
	if last < 0 || !r.changes[last].write() {
		return
	}
	// A later delete may have taken effect before the read ended.
	for _, at := range r.deletes {
		if at > last && r.changes[at].Begin <= read.End {
			return
		}
	}
	v.addf(LostWrite, r.key, "%v was absent for %v", r.changes[last], read)
}

func (r *register) checkPresent(v *verdict, read *Op) {
	at, known := r.place[read.Value]
	if !known {
		if o := r.refused[read.Value]; o != nil {
			v.addf(Phantom, r.key, "%v was seen by %v", o, read)
		} else {
			v.addf(Phantom, r.key, "%v", read)
		}
		return
	}
	source := r.changes[at]
	if source.Begin > read.End {
		v.addf(Phantom, r.key, "%v was seen before, by %v", source, read)
	}
	lastAt := r.lastAcked(read.Begin)
	if lastAt < 0 || at == lastAt {
		return
	}
	last := r.changes[lastAt]
	switch {
	case last.write() && read.Version < last.Version:
		v.addf(LostWrite, r.key, "%v was not there for %v", last, read)
	case at > lastAt:
	case source.Kind == Create && source.Outcome == Unknown:
		// A create whose response was lost may take effect at any later time at which the key does
		// not exist.
	case last.write() && read.Version > last.Version:
		v.addf(LateEffect, r.key, "%v, seen by %v after %v", source, read, last)
	case !last.write():
		v.addf(LostWrite, r.key, "%v was back for %v after %v", source, read, last)
	}
}

// checkVersions checks that every value has only one version, and that reads returned that version.
func (r *register) checkVersions(v *verdict) {
	seen := map[string]*Op{}
	for _, at := range r.acked {
		if o := r.changes[at]; o.write() {
			seen[o.Value] = o
		}
	}
	for _, read := range r.reads {
		if read.Value == "" {
			continue
		}
		first := seen[read.Value]
		if first == nil {
			seen[read.Value] = read
			continue
		}
		if first.Version != read.Version {
			rule := Duplicate
			if first.Kind != Read {
				rule = Untrue
			}
			v.addf(rule, r.key, "%v and %v", first, read)
		}
	}
}

// checkReads checks that no read returns an older value than another read that had ended before the
// first one began.
func (r *register) checkReads(v *verdict) {
	ended := slices.Clone(r.reads)
	slices.SortStableFunc(ended, func(a, b *Op) int { return cmp.Compare(a.End, b.End) })
	var latest *Op
	next := 0
	for _, read := range r.reads { // reads are sorted by their beginning
		for ; next < len(ended) && ended[next].End < read.Begin; next++ {
			if latest == nil || ended[next].Version > latest.Version {
				latest = ended[next]
			}
		}
		if read.Value != "" && latest != nil && read.Version < latest.Version {
			v.addf(TimeTravel, r.key, "%v after %v", read, latest)
		}
	}
}
