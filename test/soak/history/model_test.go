// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	h "keelson.dev/keelson/test/soak/history"
)

// model is a correct store with one register, a writer and a reader. The responses of some
// operations are lost. Such an operation may take effect at any later time at which its condition
// holds.
type model struct {
	t       *rapid.T
	now     time.Duration
	version int64
	// value and at are the current value and its version. value is empty if the key does not exist.
	value   string
	at      int64
	pending []h.Op
	ops     []h.Op
	events  []h.Event
	written int
}

func (m *model) tick() time.Duration {
	m.now += time.Duration(rapid.IntRange(1, 3).Draw(m.t, "tick"))
	return m.now
}

// apply executes an operation, and reports whether the operation took effect.
func (m *model) apply(o *h.Op) bool {
	switch {
	case o.Kind == h.Create && m.value != "", o.Kind != h.Create && m.at != o.Base:
		return false
	}
	m.version += int64(rapid.IntRange(1, 2).Draw(m.t, "others' versions"))
	event := h.Event{Key: "k", Value: o.Value, Version: m.version, At: m.now}
	switch o.Kind {
	case h.Create:
		event.Type = h.Added
	case h.Update:
		event.Type = h.Modified
	default:
		event.Type, event.Value = h.Deleted, m.value
	}
	m.events = append(m.events, event)
	m.value, m.at = o.Value, m.version
	if o.Kind == h.Delete {
		m.at = 0
		return true
	}
	o.Version = m.version
	return true
}

// late executes some of the operations whose responses were lost.
func (m *model) late() {
	m.pending = slices.DeleteFunc(m.pending, func(o h.Op) bool {
		if rapid.IntRange(0, 3).Draw(m.t, "happens") > 0 {
			return false
		}
		m.tick()
		m.apply(&o)
		return true
	})
}

func (m *model) write() {
	o := h.Op{Client: "w", Kind: h.Create, Key: "k", Begin: m.tick()}
	if m.value != "" {
		o.Base = m.at
		o.Kind = rapid.SampledFrom([]h.Kind{h.Update, h.Update, h.Delete}).Draw(m.t, "kind")
	}
	if o.Kind != h.Delete {
		m.written++
		o.Value = fmt.Sprint("v", m.written)
	}
	m.late()
	lost := rapid.IntRange(0, 3).Draw(m.t, "lost") == 0
	switch {
	case lost && rapid.Bool().Draw(m.t, "later"):
		m.pending = append(m.pending, o)
		o.Outcome = h.Unknown
	case !m.apply(&o):
		o.Outcome = h.Refused
	default:
		o.Outcome = h.Acknowledged
	}
	if lost && o.Outcome == h.Acknowledged {
		o.Outcome, o.Version = h.Unknown, 0
	}
	o.End = m.tick()
	m.ops = append(m.ops, o)
}

func (m *model) read() {
	o := h.Op{Client: "r", Kind: h.Read, Key: "k", Begin: m.tick(), Outcome: h.Acknowledged}
	m.late()
	o.Value = m.value
	if m.value != "" {
		o.Version = m.at
	}
	m.late()
	o.End = m.tick()
	m.ops = append(m.ops, o)
}

func run(t *rapid.T) *model {
	m := &model{t: t, version: 1}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		if rapid.Bool().Draw(t, "read") {
			m.read()
		} else {
			m.write()
		}
	}
	m.read()
	return m
}

func all(string, string) bool { return true }

// TestCorrectStoresAreBelieved checks that the checkers report no violation for the history of a
// correct store.
func TestCorrectStoresAreBelieved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := run(t)
		if v := h.Registers(m.ops); len(v) > 0 {
			t.Fatalf("%v\n%v", v, m.ops)
		}
		segment := h.Segment{Watcher: "w", From: 1,
			Events: append(m.events, h.Event{Type: h.Bookmark, Version: m.version + 1})}
		if v := h.Watches(m.ops, []h.Segment{segment}, all); len(v) > 0 {
			t.Fatalf("%v\n%v\n%v", v, m.ops, m.events)
		}
	})
}

// TestLostEventsAreFound removes an event from a correct watch, and checks that a violation is
// reported.
func TestLostEventsAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := run(t)
		acked := map[int64]bool{}
		for _, o := range m.ops {
			if o.Outcome == h.Acknowledged && o.Kind != h.Read {
				acked[o.Version] = true
			}
		}
		var candidates []int
		for i, e := range m.events {
			if acked[e.Version] {
				candidates = append(candidates, i)
			}
		}
		if len(candidates) == 0 {
			t.Skip("nothing was acknowledged")
		}
		left := rapid.SampledFrom(candidates).Draw(t, "left out")
		events := slices.Delete(slices.Clone(m.events), left, left+1)
		segment := h.Segment{Watcher: "w", From: 1, Events: append(events, h.Event{Type: h.Bookmark, Version: m.version + 1})}
		if v := h.Watches(m.ops, []h.Segment{segment}, all); len(v) == 0 {
			t.Fatalf("event %v was left out and nothing found\n%v", m.events[left], m.ops)
		}
	})
}

// TestLostWritesAreFound checks that a violation is reported if the last acknowledged write is
// lost.
func TestLostWritesAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := run(t)
		last := -1
		for i, o := range m.ops {
			if o.Outcome == h.Acknowledged && o.Kind != h.Read {
				last = i
			}
		}
		if last < 0 || m.ops[last].Kind == h.Delete {
			t.Skip("no write was acknowledged in the end")
		}
		before := h.Op{Kind: h.Read, Key: "k", Begin: m.ops[last].End + 1, End: m.ops[last].End + 2, Outcome: h.Acknowledged}
		for _, o := range m.ops[:last] {
			if o.Outcome == h.Acknowledged && (o.Kind == h.Create || o.Kind == h.Update) {
				before.Value, before.Version = o.Value, o.Version
			}
		}
		ops := append(slices.Clone(m.ops[:last+1]), before)
		if v := h.Registers(ops); len(v) == 0 {
			t.Fatalf("%v was lost and nothing found\n%v", m.ops[last], ops)
		}
	})
}
