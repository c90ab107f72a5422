// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rejoin

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/epoch"
)

// watch returns a Watch of a machine whose store has an epoch, or an unknown one if it is negative.
func (m *model) watch(j Journal, own int64) *Watch {
	m.t.Helper()
	w := &Watch{
		Server: func() string { return "own" }, Store: epoch.File(filepath.Join(m.t.TempDir(), "store-epoch")),
		Journal: j, Exclusively: func(f func() error) error { return f() }, Start: func(context.Context) error { return nil },
		Clock: testclock.NewFakeClock(time.Now()), Log: slog.New(slog.DiscardHandler),
	}
	if own >= 0 {
		if err := w.Store.Write(own); err != nil {
			m.t.Fatal(err)
		}
	}
	return w
}

// TestWatch checks when a control plane leaves its history.
func TestWatch(t *testing.T) {
	const none = -1
	for name, tc := range map[string]struct {
		own     int64 // the epoch in the file
		shown   map[string]int64
		highest int64
		worker  bool
		joins   bool
		then    int64 // the epoch in the file afterwards
	}{
		"never restored":             {own: none, shown: map[string]int64{"own": 0, "other": 0}, then: 0},
		"own server does not answer": {own: none, shown: map[string]int64{"other": 7}, highest: 7, then: none},
		"no server answers":          {own: 0, highest: 0, then: 0},
		"restored elsewhere": {own: 0, shown: map[string]int64{"own": 0, "other": 7}, highest: 7,
			joins: true},
		"restored elsewhere, known from file": {own: 0, highest: 7, joins: true},
		"restored elsewhere, own server answers first": {own: none, shown: map[string]int64{"own": 3, "other": 7},
			highest: 7, joins: true, then: 3},
		"a worker":                   {own: none, shown: map[string]int64{"other": 7}, highest: 7, worker: true, then: none},
		"restored here":              {own: 7, shown: map[string]int64{"own": 7, "other": 3}, highest: 7, then: 7},
		"an old store was put here":  {own: 7, shown: map[string]int64{"own": 3}, highest: 7, then: 7},
		"a new store was put here":   {own: 3, shown: map[string]int64{"own": 7}, highest: 7, then: 7},
		"others have an older store": {own: 7, shown: map[string]int64{"other": 0}, highest: 7, then: 7},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, tc.highest)
			j := Journal(filepath.Join(t.TempDir(), "journal"))
			w := m.watch(j, tc.own)
			started := 0
			w.Start = func(context.Context) error { started++; return nil }
			if tc.worker {
				w.Server = func() string { return "" }
			}
			for range 2 { // the second time, the journal exists
				if err := w.Seen(t.Context(), tc.shown, tc.highest); err != nil {
					t.Fatal(err)
				}
			}
			e, err := j.Load()
			if err != nil {
				t.Fatal(err)
			}
			if joins := e != nil && *e == (Entry{Epoch: tc.highest, Step: Stop}) && started == 1; joins != tc.joins {
				t.Errorf("journal %+v, started %d times", e, started)
			}
			if now, known := w.Store.Read(); known != (tc.then >= 0) || known && now != tc.then {
				t.Errorf("the epoch of the store is %d, %t; want %d", now, known, tc.then)
			}
		})
	}
}

var errBusy = errors.New("a switch of releases runs")

// TestWatchExcluded checks that a control plane begins to join only when nothing else restarts its programs.
func TestWatchExcluded(t *testing.T) {
	m := newModel(t, 7)
	j := Journal(filepath.Join(t.TempDir(), "journal"))
	w := m.watch(j, 0)
	started := false
	w.Start = func(context.Context) error { started = true; return nil }
	w.Exclusively = func(func() error) error { return errBusy }
	if err := w.Seen(t.Context(), nil, 7); !errors.Is(err, errBusy) || started {
		t.Errorf("error %v, started: %t", err, started)
	}
	if e, err := j.Load(); e != nil || err != nil {
		t.Errorf("journal %+v, %v", e, err)
	}
	w.Exclusively = func(f func() error) error { return f() }
	if err := w.Seen(t.Context(), nil, 7); err != nil || !started {
		t.Errorf("at its end: error %v, started: %t", err, started)
	}
}

// TestWatchPauses checks that systemd is not asked again and again to start the program, which it restarts by itself,
// and that a program for another restore starts at once.
func TestWatchPauses(t *testing.T) {
	m := newModel(t, 7)
	j := Journal(filepath.Join(t.TempDir(), "journal"))
	w := m.watch(j, 0)
	clk := testclock.NewFakeClock(time.Now())
	w.Clock = clk
	started := 0
	w.Start = func(context.Context) error { started++; return nil }
	for _, step := range []struct {
		after  time.Duration
		joined bool
		want   int
	}{
		{want: 1},
		{after: startPause / 2, want: 1},
		{after: startPause / 2, want: 2},
		{joined: true, want: 3},
		{want: 3},
	} {
		clk.Step(step.after)
		if step.joined { // the program has come to its end, and the cluster was restored again
			if err := j.Remove(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Seen(t.Context(), nil, 7); err != nil || started != step.want {
			t.Errorf("%+v: started %d times, %v", step, started, err)
		}
	}
}
