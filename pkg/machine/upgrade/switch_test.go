// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const from, to = "old", "new"

// fakeMachine is a machine whose calls can be interrupted.
type fakeMachine struct {
	link     string
	runs     map[string]string // the release of each program
	restarts map[string]int
	order    []string        // the programs that were restarted
	images   []string        // the releases whose images were imported, and how many programs were restarted before
	broken   map[string]bool // PROGRAM/RELEASE: programs that never are healthy
	// left is how many calls succeed until the switcher is killed, negative for all. die ends its context.
	left int
	die  context.CancelFunc
}

var (
	programs   = []string{"apiserver", "containerd", "kubelet", "agent"}
	errKilled  = errors.New("killed")
	errBroken  = errors.New("not healthy")
	errRestart = errors.New("it runs already")
)

func newFake(broken ...string) *fakeMachine {
	m := &fakeMachine{link: from, runs: map[string]string{}, restarts: map[string]int{}, broken: map[string]bool{}}
	for _, p := range programs {
		m.runs[p] = from
	}
	for _, b := range broken {
		m.broken[b] = true
	}
	return m
}

// call returns an error if the switcher is killed before the call has an effect.
func (m *fakeMachine) call() error {
	if m.left == 0 {
		m.die()
		return errKilled
	}
	m.left--
	return nil
}

func (m *fakeMachine) Programs(_ context.Context, _, to string) ([]string, error) {
	out := slices.Clone(programs)
	if to == from { // the order of a return
		slices.Reverse(out)
	}
	return out, nil
}

// Import needs containerd.
func (m *fakeMachine) Import(_ context.Context, release string) (bool, error) {
	if err := m.call(); err != nil {
		return false, err
	}
	if m.broken["images/"+release] {
		return false, errBroken
	}
	runs := !m.broken["containerd/"+m.runs["containerd"]]
	if runs {
		m.images = append(m.images, fmt.Sprintf("%s after %d", release, len(m.order)))
	}
	return runs, nil
}

func (m *fakeMachine) Use(_ context.Context, release string) error {
	if err := m.call(); err != nil {
		return err
	}
	m.link = release
	return nil
}

func (m *fakeMachine) Runs(_ context.Context, program string) (string, error) {
	return m.runs[program], m.call()
}

func (m *fakeMachine) Restart(_ context.Context, program string) error {
	if err := m.call(); err != nil {
		return err
	}
	if m.runs[program] == m.link {
		return errRestart
	}
	m.runs[program] = m.link
	m.restarts[program]++
	m.order = append(m.order, program)
	return nil
}

func (m *fakeMachine) Healthy(_ context.Context, program string) error {
	if err := m.call(); err != nil {
		return err
	}
	if m.broken[program+"/"+m.runs[program]] {
		return errBroken
	}
	return nil
}

// boot starts all programs again, as after a power failure.
func (m *fakeMachine) boot() {
	for _, p := range programs {
		m.runs[p] = m.link
	}
}

// run runs a switcher that is killed after a number of calls, and reports whether it has ended by
// itself.
func (m *fakeMachine) run(t rapid.TB, j Journal, calls int) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.left, m.die = calls, cancel
	err := Run(ctx, j, m, slog.New(slog.DiscardHandler))
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return err == nil
}

// in returns an error unless the machine is in a release with all its programs.
func (m *fakeMachine) in(release string) error {
	if m.link != release {
		return fmt.Errorf("link to %s, want %s", m.link, release)
	}
	for p, runs := range m.runs {
		if runs != release {
			return fmt.Errorf("%s is of %s, want %s", p, runs, release)
		}
	}
	return nil
}

func newJournal(t testing.TB, e *Entry) Journal {
	t.Helper()
	j := Journal(filepath.Join(t.TempDir(), "journal.json"))
	if err := j.Save(e); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestRun(t *testing.T) {
	for name, tc := range map[string]struct {
		broken  []string
		failure string // a part of it; empty if the new release works
		not     string // a part that the failure must not have
	}{
		"good":                 {nil, "", ""},
		"first program broken": {[]string{"apiserver/new"}, "apiserver: not healthy", "return"},
		"last program broken":  {[]string{"agent/new"}, "agent: not healthy", "return"},
		"broken in both":       {[]string{"kubelet/new", "kubelet/old"}, "after the return to old: kubelet: ", ""},
		"images broken":        {[]string{"images/new"}, "not healthy", "return"},
		"images of the old release broken": {[]string{"kubelet/new", "images/old"}, "after the return to old: not healthy",
			""},
		"another one broken later": {[]string{"kubelet/new", "apiserver/old"}, "after the return to old: apiserver: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, j := newFake(tc.broken...), newJournal(t, &Entry{From: from, To: to})
			if !m.run(t, j, -1) {
				t.Fatal("the switch has not ended")
			}
			e, err := j.Load()
			if err != nil || !e.Done || (e.Failure == "") != (tc.failure == "") || !strings.Contains(e.Failure, tc.failure) ||
				tc.not != "" && strings.Contains(e.Failure, tc.not) {
				t.Errorf("entry %+v, %v", e, err)
			}
			if err := m.in(e.Release()); err != nil {
				t.Error(err)
			}
			before := fmt.Sprint(m.restarts)
			if !m.run(t, j, -1) || fmt.Sprint(m.restarts) != before {
				t.Error("a switch that is done was done again")
			}
		})
	}
}

// TestOrder checks that a return has its own order, and that programs that were not restarted stay as they are.
func TestOrder(t *testing.T) {
	for broken, want := range map[string]string{
		"":              "apiserver containerd kubelet agent",
		"apiserver/new": "apiserver apiserver",
		"kubelet/new":   "apiserver containerd kubelet kubelet containerd apiserver",
	} {
		m, j := newFake(broken), newJournal(t, &Entry{From: from, To: to})
		if !m.run(t, j, -1) {
			t.Fatal("the switch has not ended")
		}
		if got := strings.Join(m.order, " "); got != want {
			t.Errorf("%q is broken: restarted %s, want %s", broken, got, want)
		}
	}
}

// TestImages checks that the images of a release are there before a program stops, if containerd runs, that those
// of the old release replace them after a return, and that nothing changes if they cannot be imported.
func TestImages(t *testing.T) {
	for name, tc := range map[string]struct {
		broken []string
		want   string
	}{
		"good":                           {nil, "new after 0"},
		"a return":                       {[]string{"kubelet/new"}, "new after 0, old after 6"},
		"containerd does not run before": {[]string{"containerd/old"}, "new after 4"},
		"the images cannot be imported":  {[]string{"images/new"}, "old after 0"},
	} {
		m, j := newFake(tc.broken...), newJournal(t, &Entry{From: from, To: to})
		if !m.run(t, j, -1) {
			t.Fatalf("%s: the switch has not ended", name)
		}
		if got := strings.Join(m.images, ", "); got != tc.want {
			t.Errorf("%s: imported %q, want %q", name, got, tc.want)
		}
	}
}

// TestRunBeforeAnySwitch checks that a machine without a journal is left alone.
func TestRunBeforeAnySwitch(t *testing.T) {
	m := newFake()
	if !m.run(t, Journal(filepath.Join(t.TempDir(), "none")), 0) {
		t.Error("the switcher has called the machine")
	}
}

// TestRunInterrupted kills the switcher, and turns the machine off, at random moments. In the end, all
// programs are of one release, the journal says which, and it is the old one if the new one is broken.
func TestRunInterrupted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, j := newFake(), newJournal(t, &Entry{From: from, To: to})
		if i := rapid.IntRange(-1, len(programs)-1).Draw(rt, "broken"); i >= 0 {
			m.broken[programs[i]+"/new"] = true
		}
		kills := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 6).Draw(rt, "kills")
		ended := false
		for i, calls := range kills {
			if ended = m.run(rt, j, calls); ended {
				break
			}
			if e, err := j.Load(); err != nil || e.Done {
				rt.Fatalf("after kill %d: %+v, %v", i, e, err)
			}
			if rapid.Bool().Draw(rt, "power failure") {
				m.boot()
			}
		}
		if !ended && !m.run(rt, j, -1) {
			rt.Fatal("the switch has not ended")
		}
		e, err := j.Load()
		if err != nil || !e.Done {
			rt.Fatalf("%+v, %v", e, err)
		}
		if err := m.in(e.Release()); err != nil {
			rt.Error(err)
		}
		if len(m.broken) > 0 && e.Release() != from {
			rt.Error("the machine uses a broken release")
		}
		if len(m.broken) == 0 && len(kills) < maxStarts && e.Release() != to {
			rt.Errorf("the machine has given up: %s", e.Failure)
		}
		for p, n := range m.restarts {
			if n > 2 {
				rt.Errorf("%s was restarted %d times", p, n)
			}
		}
	})
}

func TestPrevious(t *testing.T) {
	for name, tc := range map[string]struct {
		entry Entry
		want  string
	}{
		"running": {Entry{From: "2", To: "3", Before: "1"}, "1"},
		"failed":  {Entry{From: "2", To: "3", Before: "1", Failure: "x", Done: true}, "1"},
		"done":    {Entry{From: "2", To: "3", Before: "1", Done: true}, "2"},
		"return":  {Entry{From: "2", To: "1", Before: "1", Done: true}, ""},
	} {
		if got := tc.entry.Previous(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
