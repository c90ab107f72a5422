// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kv_test

import (
	"errors"
	"log/slog"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
)

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "b", "/p/": "/p0", "a\xff": "b", "\xff\xff": ""} {
		if got := kv.PrefixEnd(prefix); got != want {
			t.Errorf("PrefixEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// TestCompactorsAgree runs two compactors on one store. States of the last interval must stay
// readable and older ones must be compacted, however the steps of the two interleave.
func TestCompactorsAgree(t *testing.T) {
	s := memory.New(clock.Real())
	a := &kv.Compactor{Store: s, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	b := &kv.Compactor{Store: s, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	step := func(c *kv.Compactor) {
		t.Helper()
		if err := c.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	readable := func(rev int64) bool {
		_, err := s.Range(t.Context(), kv.RangeOptions{Revision: rev})
		if err != nil && !errors.Is(err, kv.ErrCompacted) {
			t.Fatal(err)
		}
		return err == nil
	}
	write := func() int64 {
		it, _, err := s.Get(t.Context(), "/k")
		if err != nil {
			t.Fatal(err)
		}
		var expect int64
		if it != nil {
			expect = it.ModRevision
		}
		res, err := s.Put(t.Context(), "/k", nil, expect, 0)
		if err != nil || !res.OK {
			t.Fatal(res, err)
		}
		return res.Revision
	}
	r1 := write()
	step(a) // the first step of a
	step(b) // the first step of b finds the key that a wrote
	r2 := write()
	if !readable(r1) {
		t.Error("compacted at the first step")
	}
	step(a) // whichever of a and b compacts, it may compact r1 but not r2
	step(b)
	if readable(r1) || !readable(r2) {
		t.Errorf("after an interval: r1 readable %t, r2 readable %t", readable(r1), readable(r2))
	}
	r3 := write()
	step(b)
	step(a)
	if readable(r2) || !readable(r3) {
		t.Errorf("after two intervals: r2 readable %t, r3 readable %t", readable(r2), readable(r3))
	}
}

// TestCompactedElsewhere checks that a compactor is content if another process has compacted further.
func TestCompactedElsewhere(t *testing.T) {
	s := memory.New(clock.Real())
	var reported int64
	c := &kv.Compactor{Store: s, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Compacted: func(rev int64) { reported = rev }}
	if err := c.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := s.Put(t.Context(), "/k", nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context(), res.Revision); err != nil {
		t.Fatal(err)
	}
	if err := c.Step(t.Context()); err != nil || reported == 0 || reported >= res.Revision {
		t.Errorf("after a compaction to %d: reported %d, %v", res.Revision, reported, err)
	}
}
