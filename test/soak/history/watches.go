// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// EventType is the type of an event of a watch.
type EventType string

// The types of watch events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one event of a watch. Version is the resource version of the change. For a deleted
// object it is the version of the deletion.
type Event struct {
	Type    EventType
	Key     string
	Value   string
	Version int64
	At      time.Duration
}

// Segment has the events that one client received between two lists. A client that is disconnected
// resumes its watch at the last version that it received. It lists again only if the server
// responds that this version is no longer available.
type Segment struct {
	Watcher string
	// From is the version of the list. Initial has the objects in the list, with their versions by
	// key.
	From    int64
	Initial map[string]int64
	Events  []Event
	// Connections is the number of watch connections that were needed to receive the events.
	Connections int
}

// To returns the last version that the client received.
func (s *Segment) To() int64 {
	if len(s.Events) == 0 {
		return s.From
	}
	return s.Events[len(s.Events)-1].Version
}

// Rules that [Watches] checks.
const (
	Gap        = "watch left out a change"
	Repeated   = "watch reported a change twice or out of order"
	WrongEvent = "watch reported a change that did not happen"
)

// Watches checks watches of keys that have one writer each. belongs reports whether a watcher
// watches a key.
func Watches(ops []Op, segments []Segment, belongs func(watcher, key string) bool) []Violation {
	var v verdict
	w := newWrites(ops)
	for i := range segments {
		s := &segments[i]
		checkOrder(&v, s)
		w.check(&v, s, belongs)
	}
	return v
}

// checkOrder checks a single segment: versions must increase, and each event must be possible after
// the events before it.
func checkOrder(v *verdict, s *Segment) {
	present := map[string]int64{}
	for key, version := range s.Initial {
		present[key] = version
	}
	last := s.From
	for _, e := range s.Events {
		if e.Type == Bookmark {
			if e.Version < last {
				v.addf(Repeated, s.Watcher, "a bookmark of version %d at %v, after version %d", e.Version, e.At, last)
			}
			last = max(last, e.Version)
			continue
		}
		if e.Version <= last {
			v.addf(Repeated, e.Key, "%s: %s of version %d at %v, after version %d", s.Watcher, e.Type, e.Version, e.At, last)
			continue
		}
		last = e.Version
		switch _, there := present[e.Key]; {
		case e.Type == Added && there:
			v.addf(Gap, e.Key, "%s: the end of version %d before %s of version %d at %v", s.Watcher,
				present[e.Key], e.Type, e.Version, e.At)
		case e.Type != Added && !there:
			v.addf(Gap, e.Key, "%s: the creation before %s of version %d at %v", s.Watcher, e.Type, e.Version, e.At)
		}
		if e.Type == Deleted {
			delete(present, e.Key)
		} else {
			present[e.Key] = e.Version
		}
	}
}

// writes has the acknowledged changes that watches must report.
type writes struct {
	// byVersion has the acknowledged creates and updates, sorted by their beginning. byValue has
	// also those whose response was lost, by key and value.
	byVersion []*Op
	byValue   map[string]map[string]*Op
	deletes   []deletion
	// bounds has the acknowledged writes, sorted by their beginning. Each has the lowest version
	// among the writes that begin at the same time or later.
	bounds []bound
}

// deletion is an acknowledged delete. Its version is unknown, but lies between a lower and an upper
// bound.
type deletion struct {
	*Op
	after, until int64
}

type bound struct {
	begin time.Duration
	least int64
}

func newWrites(ops []Op) *writes {
	w := &writes{byValue: map[string]map[string]*Op{}}
	keys, parts := byKey(ops)
	for _, key := range keys {
		values := map[string]*Op{}
		last := int64(0)
		for _, o := range parts[key] {
			switch {
			case o.write() && o.Outcome != Refused:
				values[o.Value] = o
				if o.Outcome == Acknowledged {
					w.byVersion = append(w.byVersion, o)
					last = o.Version
				}
			case o.Kind == Delete && o.Outcome == Acknowledged:
				w.deletes = append(w.deletes, deletion{Op: o, after: last})
			}
		}
		w.byValue[key] = values
	}
	slices.SortFunc(w.byVersion, func(a, b *Op) int { return cmp.Compare(a.Begin, b.Begin) })
	least := int64(math.MaxInt64)
	for _, o := range slices.Backward(w.byVersion) {
		least = min(least, o.Version)
		w.bounds = append(w.bounds, bound{o.Begin, least})
	}
	slices.Reverse(w.bounds)
	for i := range w.deletes {
		d := &w.deletes[i]
		at, _ := slices.BinarySearchFunc(w.bounds, d.End+1, func(b bound, t time.Duration) int {
			return cmp.Compare(b.begin, t)
		})
		d.until = math.MaxInt64
		if at < len(w.bounds) {
			d.until = w.bounds[at].least
		}
	}
	return w
}

// check checks that a segment has all events that the writes require, and no others.
func (w *writes) check(v *verdict, s *Segment, belongs func(watcher, key string) bool) {
	told := map[int64]*Event{}
	ended := map[string][]int64{} // versions of deletions by key, ascending
	for i := range s.Events {
		e := &s.Events[i]
		switch e.Type {
		case Bookmark:
		case Deleted:
			ended[e.Key] = append(ended[e.Key], e.Version)
		default:
			told[e.Version] = e
			if values, known := w.byValue[e.Key]; known {
				o := values[e.Value]
				if o == nil || o.Outcome == Acknowledged && o.Version != e.Version {
					v.addf(WrongEvent, e.Key, "%s: %s of version %d with value %q at %v; written: %v", s.Watcher,
						e.Type, e.Version, e.Value, e.At, o)
				}
			}
		}
	}
	to := s.To()
	for _, o := range w.byVersion {
		if !belongs(s.Watcher, o.Key) || o.Version <= s.From || o.Version > to {
			continue
		}
		if e := told[o.Version]; e == nil || e.Key != o.Key {
			v.addf(Gap, o.Key, "%s: %v (versions %d to %d)", s.Watcher, o, s.From, to)
		}
	}
	for _, d := range w.deletes {
		if !belongs(s.Watcher, d.Key) || d.after < s.From || d.until > to {
			continue
		}
		if !slices.ContainsFunc(ended[d.Key], func(version int64) bool { return version > d.after && version < d.until }) {
			v.addf(Gap, d.Key, "%s: %v (between versions %d and %d)", s.Watcher, d.Op, d.after, d.until)
		}
	}
}
