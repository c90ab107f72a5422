// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rejoin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"keelson.dev/api/clock"
)

// model is a naive machine. The methods of Machine end in the middle when the machine is killed, which is when
// steps is 0.
type model struct {
	t       *testing.T
	highest int64
	steps   int // how many more changes happen until the process ends
	kill    context.CancelFunc
	fails   int // how many more attempts fail
	// unjoinable is the step from which on the restored cluster cannot be joined, or "".
	unjoinable Step

	// On the machine:
	runs  bool // the old control plane, or the new one
	flags bool
	store string   // the data of etcd
	votes bool     // the member has a vote in the restored cluster
	aside []string // the data that were moved aside, the oldest first

	// In the cluster:
	members map[string]bool // restored clusters that have the machine as a member
}

const lost = "lost history"

func restored(epoch int64) string { return fmt.Sprint("restored ", epoch) }

var errFault = errors.New("fault")

// change makes a change unless the process has ended.
func (m *model) change(f func()) error {
	if m.steps == 0 {
		m.kill()
		return errFault
	}
	m.steps--
	if m.fails > 0 {
		m.fails--
		return errFault
	}
	f()
	return nil
}

func (m *model) all(changes ...func()) error {
	for _, f := range changes {
		if err := m.change(f); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) Highest() int64 { return m.highest }

func (m *model) Joinable(context.Context, int64) error {
	if m.unjoinable == Stop || m.unjoinable == SetAside && !m.runs {
		m.kill() // instead of an attempt without an end
		return errFault
	}
	return nil
}

func (m *model) Stop(context.Context, int64) error {
	return m.all(func() { m.flags = false }, func() { m.runs = false })
}

func (m *model) SetAside(_ context.Context, _ int64, copied bool) error {
	return m.change(func() {
		if m.runs || m.flags {
			m.t.Error("the data are moved while the control plane can run")
		}
		if m.store != "" && !copied {
			m.aside = append(m.aside, m.store)
		}
		if copied && (m.store == lost || m.votes) {
			m.t.Errorf("a history of its own is deleted: %s", m.store)
		}
		m.store, m.votes = "", false
	})
}

func (m *model) Join(_ context.Context, epoch int64) error {
	return m.all(func() {
		if m.store != "" && m.store != restored(epoch) {
			m.t.Errorf("joins %s with %s", restored(epoch), m.store)
		}
		m.members[restored(epoch)] = true
	}, func() { m.store = restored(epoch) })
}

func (m *model) Vote(_ context.Context, epoch int64) error {
	return m.change(func() {
		if m.store != restored(epoch) {
			m.t.Errorf("votes with %q", m.store)
		}
		m.votes = true
	})
}

func (m *model) Start(_ context.Context, epoch int64) error {
	return m.all(func() {
		if m.store != restored(epoch) || !m.votes {
			m.t.Errorf("starts with %q, votes: %t", m.store, m.votes)
		}
		m.flags = true
	}, func() { m.runs = true })
}

func newModel(t *testing.T, highest int64) *model {
	return &model{t: t, highest: highest, steps: -1, runs: true, flags: true, store: lost, members: map[string]bool{}}
}

// run runs the rejoin once.
func (m *model) run(j Journal) error {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	m.kill = cancel
	return Run(ctx, j, m, clock.Real(), slog.New(slog.DiscardHandler), func(*Entry, error) {})
}

// joined checks that the machine has joined the cluster with the highest epoch, and has kept the lost history.
func (m *model) joined(j Journal, aside ...string) {
	m.t.Helper()
	e, err := j.Load()
	if e != nil || err != nil || !m.runs || !m.flags || m.store != restored(m.highest) || !m.members[m.store] {
		m.t.Errorf("journal %+v, %v; machine %+v", e, err, m)
	}
	if !slices.Equal(m.aside, aside) {
		m.t.Errorf("kept %q, want %q", m.aside, aside)
	}
}

// TestKilled ends the process before each change on the machine in turn, and once more after any further
// number of changes, and starts it again.
func TestKilled(t *testing.T) {
	const changes = 8
	for first := range changes {
		for second := range changes {
			m := newModel(t, 7)
			j := Journal(filepath.Join(t.TempDir(), "journal"))
			if err := j.Save(&Entry{Epoch: 7, Step: Stop}); err != nil {
				t.Fatal(err)
			}
			for _, m.steps = range []int{first, second, -1} {
				if err := m.run(j); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			m.joined(j, lost)
		}
	}
}

// TestFaults checks that a step that fails is repeated with growing delays, without an end.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, 7)
		m.fails = 30
		j := Journal(filepath.Join(t.TempDir(), "journal"))
		if err := j.Save(&Entry{Epoch: 7, Step: Stop}); err != nil {
			t.Fatal(err)
		}
		clk := clock.Real()
		began := clk.Now()
		if err := m.run(j); err != nil {
			t.Fatal(err)
		}
		if d := clk.Since(began); d < 20*lastRetry || d > 30*lastRetry {
			t.Errorf("30 faults took %s", d)
		}
		m.joined(j, lost)
	})
}

// TestRestoredAgain restores the cluster once more after any number of changes. The machine joins the latest
// cluster, and keeps each history that it has had as a whole.
func TestRestoredAgain(t *testing.T) {
	const changes = 8
	for n := range changes + 1 {
		m := newModel(t, 7)
		j := Journal(filepath.Join(t.TempDir(), "journal"))
		if err := j.Save(&Entry{Epoch: 7, Step: Stop}); err != nil {
			t.Fatal(err)
		}
		m.steps = n
		if err := m.run(j); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		aside := []string{lost}
		e, err := j.Load()
		if err != nil {
			t.Fatal(err)
		}
		m.highest = 9
		if e == nil { // it had joined
			aside = append(aside, restored(7))
			w := m.watch(j, 7)
			if err := w.Seen(t.Context(), nil, 9); err != nil {
				t.Fatal(err)
			}
		} else if e.Step == Vote || e.Step == Start {
			aside = append(aside, restored(7))
		}
		m.steps = -1
		if err := m.run(j); err != nil {
			t.Fatal(err)
		}
		m.joined(j, aside...)
	}
}

// TestRandomly kills the process and restores the cluster at random.
func TestRandomly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		m := newModel(t, 1)
		j := Journal(filepath.Join(t.TempDir(), "journal"))
		if err := j.Save(&Entry{Epoch: 1, Step: Stop}); err != nil {
			t.Fatal(err)
		}
		for range r.IntN(10) {
			m.steps = r.IntN(9)
			if err := m.run(j); err == nil {
				break
			}
			m.highest += int64(r.IntN(2))
		}
		m.steps = -1
		if err := m.run(j); err != nil {
			t.Fatal(err)
		}
		if e, err := j.Load(); e != nil || err != nil || m.aside[0] != lost {
			t.Errorf("journal %+v, %v, kept %q", e, err, m.aside)
		}
	}
}

// TestUnjoinable checks that nothing is stopped, and no store is set aside, while the restored cluster cannot be
// joined, and that the control plane joins as soon as that is possible.
func TestUnjoinable(t *testing.T) {
	for _, from := range []Step{Stop, SetAside} {
		m := newModel(t, 7)
		m.unjoinable = from
		j := Journal(filepath.Join(t.TempDir(), "journal"))
		if err := j.Save(&Entry{Epoch: 7, Step: Stop}); err != nil {
			t.Fatal(err)
		}
		if err := m.run(j); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if e, err := j.Load(); err != nil || e == nil || e.Step != from {
			t.Errorf("journal %+v, %v", e, err)
		}
		if m.runs != (from == Stop) || m.store != lost || m.aside != nil {
			t.Errorf("cannot join at %s: machine %+v", from, m)
		}
		m.unjoinable = ""
		if err := m.run(j); err != nil {
			t.Fatal(err)
		}
		m.joined(j, lost)
	}
}
