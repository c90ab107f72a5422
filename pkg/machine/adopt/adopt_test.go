// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fakeMachine is a machine on which programs run as the files and the units say. It keeps no other state.
type fakeMachine struct {
	Paths
	enabled bool
	linked  bool   // the release is at the path that the manual names
	keelson bool   // its programs run
	broken  bool   // Keelson's programs never become healthy
	stuck   bool   // the kubelet ends no pods
	lost    bool   // Kubernetes' control plane does not come back
	stopped func() // is called after the end of Keelson's programs, unless it is nil
	faults  []string
}

var errBroken = errors.New("not healthy")

// kubernetes reports whether the kubelet runs a static pod.
func (m *fakeMachine) kubernetes() bool { return slices.ContainsFunc(components(), m.has) }

// has reports whether the kubelet has the manifest of a component.
func (m *fakeMachine) has(component string) bool {
	return exists(filepath.Join(m.Manifests, manifest(component)))
}

// check records a fault if both control planes could use the store.
func (m *fakeMachine) check() {
	if m.kubernetes() && (m.keelson || m.enabled && exists(filepath.Join(m.Own, "etcd.env"))) {
		m.faults = append(m.faults, "two control planes")
	}
	if (m.enabled || m.linked || m.keelson || exists(m.Own)) && !exists(m.Parked) {
		m.faults = append(m.faults, "a change without a state")
	}
}

// boot turns the machine off and on.
func (m *fakeMachine) boot() {
	m.check()
	m.keelson = m.enabled && exists(filepath.Join(m.Own, "etcd.env"))
	m.check()
}

func (m *fakeMachine) Enable(context.Context) error {
	m.enabled, m.linked = true, true
	m.check()
	return nil
}

func (m *fakeMachine) Ended(_ context.Context, components ...string) error {
	if m.stuck || slices.ContainsFunc(components, m.has) {
		return errBroken
	}
	return nil
}

func (m *fakeMachine) Start(context.Context) error {
	m.keelson = true
	m.check()
	if m.broken {
		return errBroken
	}
	return nil
}

func (m *fakeMachine) Stop(context.Context) error {
	m.keelson, m.enabled = false, false
	if m.stopped != nil {
		m.stopped()
	}
	return nil
}

func (m *fakeMachine) Unlink() error {
	m.linked = false
	return nil
}

func (m *fakeMachine) Returned(context.Context) error {
	m.check()
	if m.keelson || m.lost {
		return errBroken
	}
	return nil
}

// limited is a context that ends after it was asked a number of times whether it has.
type limited struct {
	context.Context
	left int
}

func (l *limited) Err() error {
	if l.left == 0 {
		return context.Canceled
	}
	l.left--
	return nil
}

// never is a number of steps after which no command is interrupted.
const never = 1 << 20

// newAdoption returns an adoption of a machine with kubeadm's manifests in a new directory.
func newAdoption(t testing.TB, dir string) (*Adoption, *fakeMachine) {
	t.Helper()
	m := &fakeMachine{Paths: Paths{
		Manifests: filepath.Join(dir, "kubernetes/manifests"), Parked: filepath.Join(dir, "kubernetes/parked"),
		Own: filepath.Join(dir, "own"),
	}}
	if err := os.CopyFS(m.Manifests, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	return &Adoption{Paths: m.Paths, Machine: m, Files: []File{{"etcd.env", []byte("1")}, {"apiserver.env", []byte("2")}},
		Run: func(_ string, step func() error) error { return step() }}, m
}

// files returns the content of all files of a machine, and its directories.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			out[path] = ""
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// in returns an error unless the machine is in a phase with the right programs.
func in(m *fakeMachine, want Phase) error {
	phase, err := m.Phase()
	if err != nil || phase != want {
		return fmt.Errorf("phase %q, want %q, %w", phase, want, err)
	}
	if begun := want != ""; m.linked != begun {
		return fmt.Errorf("phase %q: the command is at its path: %t", want, m.linked)
	}
	if adopted := want == Adopted; m.keelson != adopted || m.enabled != adopted || m.kubernetes() == adopted {
		return fmt.Errorf("phase %q: Keelson's programs run %t, are enabled %t; Kubernetes' run %t", want, m.keelson,
			m.enabled, m.kubernetes())
	}
	if len(m.faults) > 0 {
		return errors.New(strings.Join(m.faults, ", "))
	}
	return nil
}

// TestThereAndBack adopts a machine twice and returns twice.
func TestThereAndBack(t *testing.T) {
	dir := t.TempDir()
	a, m := newAdoption(t, dir)
	before := files(t, dir)
	for range 2 {
		if err := a.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := in(m, Adopted); err != nil {
			t.Error(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(m.Own, "apiserver.env")); err != nil || string(data) != "2" {
		t.Error(string(data), err)
	}
	for range 2 {
		if err := a.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := in(m, ""); err != nil {
			t.Error(err)
		}
	}
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Errorf("files %v, want %v", after, before)
	}
}

// TestAdoptedUnhealthy checks that a control plane which was healthy once is not said to be healthy without a check,
// and that the administrator decides then.
func TestAdoptedUnhealthy(t *testing.T) {
	a, m := newAdoption(t, t.TempDir())
	if err := a.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.broken = true
	if err := a.Adopt(t.Context()); !errors.Is(err, errUnhealthy) || !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errUnhealthy)
	}
	if err := in(m, Adopted); err != nil {
		t.Error(err)
	}
}

// TestDropped checks that an adoption remembers which flags it leaves out, wherever it is interrupted.
func TestDropped(t *testing.T) {
	a, m := newAdoption(t, t.TempDir())
	a.Drop = []string{"one", "two"}
	for steps := range 30 {
		err := a.Adopt(&limited{t.Context(), steps})
		drop, dropErr := m.Dropped()
		if dropErr != nil || exists(m.state()) != slices.Equal(drop, a.Drop) {
			t.Errorf("after %d steps: %q, %v", steps, drop, dropErr)
		}
		if err == nil {
			break
		}
	}
	if err := in(m, Adopted); err != nil {
		t.Error(err)
	}
}

// TestReturnsByItself checks that an adoption that does not work is undone.
func TestReturnsByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fakeMachine)
		want   string
		phase  Phase
	}{
		"broken release":   {func(m *fakeMachine) { m.broken = true }, "was started again: not healthy", ""},
		"stuck kubelet":    {func(m *fakeMachine) { m.stuck = true }, "was started again: not healthy", ""},
		"does not go back": {func(m *fakeMachine) { m.broken, m.lost = true, true }, "run \"ctl unadopt\"", Returning},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, m := newAdoption(t, dir)
			before := files(t, dir)
			tc.change(m)
			if err := a.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if err := in(m, tc.phase); err != nil {
				t.Error(err)
			}
			if tc.phase == Returning {
				if err := a.Adopt(t.Context()); !errors.Is(err, ErrReturning) {
					t.Errorf("adopted again: %v", err)
				}
				m.lost = false
				if err := a.Return(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if after := files(t, dir); !maps.Equal(before, after) {
				t.Errorf("files %v, want %v", after, before)
			}
		})
	}
}

// TestInterrupted interrupts both directions at random steps, with power failures in between. At the end, the
// machine is where the last command brings it, and at no time do both control planes run.
func TestInterrupted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		a, m := newAdoption(t, dir)
		before := files(t, dir)
		for range rapid.IntRange(0, 6).Draw(rt, "commands") {
			ctx := &limited{context.Background(), rapid.IntRange(0, 20).Draw(rt, "steps")}
			if rapid.Bool().Draw(rt, "adopt") {
				err = a.Adopt(ctx)
			} else {
				err = a.Return(ctx)
			}
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrReturning) {
				rt.Fatal(err)
			}
			if rapid.Bool().Draw(rt, "power failure") {
				m.boot()
			}
		}
		if rapid.Bool().Draw(rt, "adopt at the end") {
			err := a.Adopt(&limited{context.Background(), never})
			if phase, _ := m.Phase(); errors.Is(err, ErrReturning) && phase == Returning {
				err = a.Return(context.Background())
			}
			if err != nil {
				rt.Fatal(err)
			}
			if err := a.Adopt(context.Background()); err != nil {
				rt.Fatal(err)
			}
			if err := in(m, Adopted); err != nil {
				rt.Fatal(err)
			}
		}
		if err := a.Return(context.Background()); err != nil {
			rt.Fatal(err)
		}
		if err := in(m, ""); err != nil {
			rt.Fatal(err)
		}
		if after := files(t, dir); !maps.Equal(before, after) {
			rt.Errorf("files %v, want %v", after, before)
		}
	})
}

// TestNewManifest checks that a manifest which was written during an adoption is not lost, and that nothing changes
// until the administrator has chosen one of the two.
func TestNewManifest(t *testing.T) {
	dir := t.TempDir()
	a, m := newAdoption(t, dir)
	before := files(t, dir)
	if err := a.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(m.Manifests, manifest(APIServer))
	write := func() {
		if err := os.WriteFile(written, []byte("new"), 0o600); err != nil {
			t.Error(err)
		}
	}
	write()
	adopted := files(t, dir)
	for name, run := range map[string]func(context.Context) error{"return": a.Return, "adopt": a.Adopt} {
		if err := run(t.Context()); !errors.Is(err, errTwo) || !strings.Contains(err.Error(), written) {
			t.Errorf("%s: %v", name, err)
		}
		if after := files(t, dir); !maps.Equal(adopted, after) || !m.keelson {
			t.Errorf("%s has changed the machine: %v, want %v", name, after, adopted)
		}
	}
	remove := func() {
		if err := os.Remove(written); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	m.stopped = write // after the check
	if err := a.Return(t.Context()); !errors.Is(err, errTwo) {
		t.Errorf("written during the return: %v", err)
	}
	if data, err := os.ReadFile(written); string(data) != "new" || !exists(filepath.Join(m.Parked, manifest(APIServer))) {
		t.Errorf("a manifest is lost: %q, %v", data, err)
	}
	remove()
	m.stopped = nil
	if err := a.Return(t.Context()); err != nil {
		t.Error(err)
	}
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Errorf("files %v, want %v", after, before)
	}
}

// TestManifestsGone checks that a machine whose manifests were removed meanwhile is not left without any.
func TestManifestsGone(t *testing.T) {
	a, m := newAdoption(t, t.TempDir())
	if err := os.Remove(filepath.Join(m.Manifests, manifest(Scheduler))); err != nil {
		t.Fatal(err)
	}
	if err := a.Adopt(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if !exists(filepath.Join(m.Manifests, manifest(Etcd))) || m.keelson {
		t.Error("the other manifests were moved")
	}
}
