// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"slices"
	"testing"
	"time"

	h "keelson.dev/keelson/test/soak/history"
)

// op returns an operation on key k. The times begin and end are in seconds.
func op(kind h.Kind, value string, version int64, begin, end int, outcome h.Outcome) h.Op {
	return h.Op{Client: "c", Kind: kind, Key: "k", Value: value, Version: version,
		Begin: time.Duration(begin) * time.Second, End: time.Duration(end) * time.Second, Outcome: outcome}
}

const (
	ack     = h.Acknowledged
	refused = h.Refused
	unknown = h.Unknown
)

// rules returns the rules that the violations are about, each once.
func rules(violations []h.Violation) []string {
	var out []string
	for _, v := range violations {
		out = append(out, v.Rule)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func expect(t *testing.T, got []h.Violation, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(rules(got), want) {
		t.Errorf("want %q, have %v", want, got)
	}
}

func TestRegisters(t *testing.T) {
	for name, c := range map[string]struct {
		ops  []h.Op
		want []string
	}{
		"written and read": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Read, "a", 1, 2, 3, ack), op(h.Update, "b", 4, 4, 5, ack),
			op(h.Read, "b", 4, 6, 7, ack),
			op(h.Delete, "", 0, 8, 9, ack), op(h.Read, "", 0, 10, 11, ack), op(h.Create, "c", 9, 12, 13, ack),
			op(h.Read, "c", 9, 14, 15, ack),
		}},
		"update lost": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 2, 2, 3, ack), op(h.Read, "a", 1, 4, 5, ack),
		}, want: []string{h.LostWrite}},
		"creation lost": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Read, "", 0, 2, 3, ack),
		}, want: []string{h.LostWrite}},
		"deletion lost": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Delete, "", 0, 2, 3, ack), op(h.Read, "a", 1, 4, 5, ack),
		}, want: []string{h.LostWrite}},
		"read while it is written": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 2, 2, 6, ack), op(h.Read, "a", 1, 3, 4, ack),
			op(h.Read, "b", 2, 5, 5, ack),
		}},
		"read while it is deleted": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Delete, "", 0, 2, 6, ack), op(h.Read, "a", 1, 3, 4, ack),
			op(h.Read, "", 0, 4, 5, ack),
		}},
		"time travel of a reader": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 2, 2, 9, ack), op(h.Read, "b", 2, 3, 4, ack),
			op(h.Read, "a", 1, 5, 6, ack),
		}, want: []string{h.TimeTravel}},
		"versions fall": {ops: []h.Op{
			op(h.Create, "a", 5, 0, 1, ack), op(h.Update, "b", 4, 2, 3, ack),
		}, want: []string{h.TimeTravel}},
		"lost answer, no effect": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 0, 2, 3, unknown), op(h.Read, "a", 1, 4, 5, ack),
			op(h.Update, "c", 2, 6, 7, ack), op(h.Read, "c", 2, 8, 9, ack),
		}},
		"lost answer, effect later": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 0, 2, 3, unknown), op(h.Read, "a", 1, 4, 5, ack),
			op(h.Read, "b", 2, 6, 7, ack),
		}},
		"lost answer, effect after its condition was void": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 0, 2, 3, unknown),
			op(h.Update, "c", 2, 4, 5, ack), op(h.Read, "b", 3, 6, 7, ack),
		}, want: []string{h.LateEffect}},
		"lost answer of a creation, effect after a deletion": {ops: []h.Op{
			op(h.Create, "a", 0, 0, 1, unknown), op(h.Create, "b", 2, 2, 3, ack),
			op(h.Delete, "", 0, 4, 5, ack), op(h.Read, "a", 4, 6, 7, ack),
		}},
		"lost answer of a deletion": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Delete, "", 0, 2, 3, unknown), op(h.Read, "a", 1, 4, 5, ack),
			op(h.Read, "", 0, 6, 7, ack),
		}},
		"effect twice": {ops: []h.Op{
			op(h.Create, "a", 0, 0, 1, unknown), op(h.Read, "a", 1, 2, 3, ack), op(h.Read, "a", 2, 4, 5, ack),
		}, want: []string{h.Duplicate}},
		"another version than was acknowledged": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Read, "a", 2, 2, 3, ack),
		}, want: []string{h.Untrue}},
		"refused and yet there": {ops: []h.Op{
			op(h.Create, "a", 1, 0, 1, ack), op(h.Update, "b", 0, 2, 3, refused), op(h.Read, "b", 2, 4, 5, ack),
		}, want: []string{h.Phantom}},
		"never written": {ops: []h.Op{op(h.Read, "x", 1, 0, 1, ack)}, want: []string{h.Phantom}},
		"seen before it was written": {ops: []h.Op{
			op(h.Read, "a", 1, 0, 1, ack), op(h.Create, "a", 1, 2, 3, ack),
		}, want: []string{h.Phantom}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, h.Registers(c.ops), c.want...) })
	}
}

func TestCounters(t *testing.T) {
	two := []h.Op{op(h.Update, "1", 5, 0, 1, ack), op(h.Update, "2", 7, 2, 3, ack),
		op(h.Update, "3", 0, 4, 5, unknown), op(h.Update, "3", 0, 4, 5, refused)}
	for name, c := range map[string]struct {
		ops   []h.Op
		final int
		want  []string
	}{
		"as acknowledged":      {ops: two, final: 2},
		"with the unknown one": {ops: two, final: 3},
		"too few":              {ops: two, final: 1, want: []string{h.LostIncrement}},
		"too many":             {ops: two, final: 4, want: []string{h.LostIncrement}},
		"two made the same sum": {ops: []h.Op{op(h.Update, "1", 5, 0, 1, ack), op(h.Update, "1", 7, 0, 1, ack)}, final: 2,
			want: []string{h.LostIncrement}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, h.Counters(c.ops, map[string]int{"k": c.final}), c.want...) })
	}
}

func TestFiles(t *testing.T) {
	ops := []h.Op{op(h.Append, "a", 0, 0, 1, ack), op(h.Append, "b", 0, 2, 3, unknown), op(h.Append, "c", 0, 4, 5, ack)}
	for name, c := range map[string]struct{ lines, want []string }{
		"all":                 {lines: []string{"a", "b", "c"}},
		"without the unknown": {lines: []string{"a", "c"}},
		"unknown late":        {lines: []string{"a", "c", "b"}},
		"lost":                {lines: []string{"a", "b"}, want: []string{h.LostLine}},
		"twice":               {lines: []string{"a", "a", "c"}, want: []string{h.TwiceLine}},
		"nobody's":            {lines: []string{"a", "x", "c"}, want: []string{h.UnknownLine}},
		"disorder":            {lines: []string{"c", "a"}, want: []string{h.DisorderLine}},
		"gone":                {want: []string{h.LostLine}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, h.Files(ops, map[string][]string{"k": c.lines}), c.want...) })
	}
}

func TestWatches(t *testing.T) {
	// The key has versions 5 and 6, is deleted with version 7 or 8, and is created again with
	// version 9.
	ops := []h.Op{
		op(h.Create, "a", 5, 0, 1, ack), op(h.Update, "b", 6, 2, 3, ack), op(h.Delete, "", 0, 4, 5, ack),
		op(h.Create, "c", 9, 6, 7, ack),
	}
	a := h.Event{Type: h.Added, Key: "k", Value: "a", Version: 5}
	b := h.Event{Type: h.Modified, Key: "k", Value: "b", Version: 6}
	d := h.Event{Type: h.Deleted, Key: "k", Value: "b", Version: 8}
	c := h.Event{Type: h.Added, Key: "k", Value: "c", Version: 9}
	mark := func(version int64) h.Event { return h.Event{Type: h.Bookmark, Version: version} }
	for name, tc := range map[string]struct {
		from    int64
		initial map[string]int64
		events  []h.Event
		want    []string
	}{
		"all":                    {from: 4, events: []h.Event{a, b, d, c}},
		"with bookmarks":         {from: 4, events: []h.Event{a, b, mark(6), d, c, mark(20), mark(20)}},
		"from the middle":        {from: 6, initial: map[string]int64{"k": 6}, events: []h.Event{d, c}},
		"not to the end":         {from: 4, events: []h.Event{a, b}},
		"nothing":                {from: 4},
		"a lost answer is seen":  {from: 4, events: []h.Event{a, b, d, c}},
		"update left out":        {from: 4, events: []h.Event{a, d, c}, want: []string{h.Gap}},
		"creation left out":      {from: 4, events: []h.Event{b, d, c}, want: []string{h.Gap}},
		"deletion left out":      {from: 4, events: []h.Event{a, b, c}, want: []string{h.Gap}},
		"last left out":          {from: 4, events: []h.Event{a, b, d, mark(20)}, want: []string{h.Gap}},
		"last deletion left out": {from: 4, events: []h.Event{a, b, mark(20)}, want: []string{h.Gap}},
		"update told twice":      {from: 4, events: []h.Event{a, b, b, d, c}, want: []string{h.Repeated}},
		"out of order":           {from: 4, events: []h.Event{a, d, b, c}, want: []string{h.Repeated}},
		"from before the beginning": {from: 5, initial: map[string]int64{"k": 5}, events: []h.Event{a, b, d, c},
			want: []string{h.Repeated}},
		"behind its bookmark": {from: 4, events: []h.Event{a, mark(7), b, d, c}, want: []string{h.Repeated}},
		"bookmarks fall":      {from: 4, events: []h.Event{a, b, mark(7), mark(6), d, c}, want: []string{h.Repeated}},
		"another value": {from: 4,
			events: []h.Event{a, {Type: h.Modified, Key: "k", Value: "x", Version: 6}, d, c}, want: []string{h.WrongEvent}},
		"another version": {from: 4,
			events: []h.Event{a, {Type: h.Modified, Key: "k", Value: "b", Version: 7}, d, c},
			want:   []string{h.WrongEvent, h.Gap}},
	} {
		t.Run(name, func(t *testing.T) {
			s := h.Segment{Watcher: "w", From: tc.from, Initial: tc.initial, Events: tc.events}
			expect(t, h.Watches(ops, []h.Segment{s}, func(string, string) bool { return true }), tc.want...)
		})
	}
}

// TestWatchesOfOthers checks that a watch need not report changes of keys that it does not select.
func TestWatchesOfOthers(t *testing.T) {
	ops := []h.Op{op(h.Create, "a", 5, 0, 1, ack), op(h.Delete, "", 0, 2, 3, ack), op(h.Create, "b", 9, 4, 5, ack)}
	s := h.Segment{Watcher: "w", From: 1, Events: []h.Event{{Type: h.Bookmark, Version: 20}}}
	expect(t, h.Watches(ops, []h.Segment{s}, func(string, string) bool { return false }))
	expect(t, h.Watches(ops, []h.Segment{s}, func(_, key string) bool { return key == "k" }), h.Gap)
}

func TestLogIsByBeginning(t *testing.T) {
	l := &h.Log{}
	l.Add(op(h.Read, "b", 0, 2, 3, ack))
	l.Add(op(h.Read, "a", 0, 1, 5, ack))
	if got := l.Ops(); got[0].Value != "a" || got[1].Value != "b" {
		t.Error(got)
	}
}
