// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Phase is how far an adoption is.
type Phase string

// The phases of an adoption. The empty phase means that the machine is not adopted.
const (
	Adopting  Phase = "adopting"  // Kubernetes' control plane is being replaced
	Adopted   Phase = "adopted"   // Keelson's control plane is healthy
	Returning Phase = "returning" // Kubernetes' control plane is coming back
)

// Paths are the directories of an adoption.
type Paths struct {
	// Manifests is the directory whose static pods the kubelet runs.
	Manifests string
	// Parked has the manifests while Keelson's control plane runs, and the state of the adoption.
	Parked string
	// Own has the flags of Keelson's programs and the configuration of the machine.
	Own string
}

func (p Paths) state() string { return filepath.Join(p.Parked, "state.json") }

// Has reports whether a file belongs to an adoption.
func (p Paths) Has(file string) bool { return filepath.Dir(file) == p.Parked }

// state is the content of the state file.
type state struct {
	Phase Phase `json:"phase"`
	// Drop has the names of flags that no program gets (see Adoption.Drop).
	Drop []string `json:"drop,omitempty"`
}

// Begun reports whether the kubelet may have ended one of the static pods already.
func (p Paths) Begun() bool {
	return slices.ContainsFunc(components(), func(c string) bool { return exists(filepath.Join(p.Parked, manifest(c))) })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Conflict returns an error if both directories have a manifest of the same component.
func (p Paths) Conflict() error {
	var errs []error
	for _, c := range components() {
		parked, written := filepath.Join(p.Parked, manifest(c)), filepath.Join(p.Manifests, manifest(c))
		if exists(parked) && exists(written) {
			errs = append(errs, fmt.Errorf("%s and %s: %w", parked, written, errTwo))
		}
	}
	return errors.Join(errs...)
}

// Phase returns the phase of the adoption.
func (p Paths) Phase() (Phase, error) {
	s, err := p.load()
	return s.Phase, err
}

// Dropped returns the names of the flags with which the adoption has begun that no program gets.
func (p Paths) Dropped() ([]string, error) {
	s, err := p.load()
	return s.Drop, err
}

func (p Paths) load() (s state, err error) {
	data, err := os.ReadFile(p.state())
	if errors.Is(err, fs.ErrNotExist) {
		if exists(p.Parked) { // it has just begun, or its return has just ended
			s.Phase = Adopting
		}
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("state of the adoption: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("state of the adoption: %s: %w", p.state(), err)
	}
	return s, nil
}

func (a *Adoption) save(phase Phase) error {
	data, err := json.Marshal(state{phase, a.Drop})
	if err != nil {
		return fmt.Errorf("state of the adoption: %w", err)
	}
	return atomicfile.WriteDurably(a.state(), append(data, '\n'), 0o600)
}

// Machine is what an adoption needs of the machine. All calls can be repeated.
type Machine interface {
	// Enable makes the link to the release, and the units of Keelson's programs known to systemd, so that those with
	// flags are started at each boot.
	Enable(ctx context.Context) error
	// Ended waits until the programs of static pods have ended, whose components are given.
	Ended(ctx context.Context, components ...string) error
	// Start starts Keelson's programs, and waits until they and the machine's node are healthy.
	Start(ctx context.Context) error
	// Stop stops Keelson's programs, and removes their units.
	Stop(ctx context.Context) error
	// Unlink removes the link to the release. It is called when Kubernetes' control plane is back, because the link is
	// part of the path at which users repeat the command if an earlier step fails.
	Unlink() error
	// Returned waits until the API server of the static pods and the machine's node are healthy.
	Returned(ctx context.Context) error
}

// File is a file with a name below Paths.Own.
type File struct {
	Name string
	Data []byte
}

// Adoption replaces the control plane of a machine, or brings it back.
type Adoption struct {
	Paths
	Machine Machine
	// Files are the files of Keelson's programs. They are needed to adopt, not to return.
	Files []File
	// Drop has the names of the flags in the manifests that are not in Files, because the user wants so. An
	// adoption that is interrupted goes on with Paths.Dropped.
	Drop []string
	// Run runs a step that takes time, and reports it. what is its name.
	Run func(what string, step func() error) error
}

var (
	// ErrReturning is the error of Adopt if a return has begun.
	ErrReturning = errors.New("an adoption was interrupted on its way back: run \"ctl unadopt\" first")
	errUnhealthy = errors.New("this machine is adopted, but Keelson's control plane is not healthy: see \"journalctl -u " +
		"'keelson-*'\", or bring Kubernetes' control plane back with \"ctl unadopt\"")
	errTwo = errors.New("both files exist, because a program such as kubeadm has written one of them during the " +
		"adoption: keep the one that Kubernetes' control plane shall use, move the other one to another directory, and " +
		"repeat the command")
	errReturned = errors.New("Keelson's control plane does not work here, so Kubernetes' control plane was started again")
)

// step is a part of an adoption. It can be repeated.
type step struct {
	what string // empty if it takes no time
	do   func(ctx context.Context) error
}

// at returns a step that is about files.
func at(do func() error) step { return step{"", func(context.Context) error { return do() }} }

// run runs steps until one fails or ctx ends.
func (a *Adoption) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		do := func() error { return s.do(ctx) }
		if s.what != "" {
			do = func() error { return a.Run(s.what, func() error { return s.do(ctx) }) }
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Adopt replaces Kubernetes' control plane. If Keelson's does not become healthy, it brings Kubernetes' back, and
// returns an error. If ctx ends, the machine remains as it is; Adopt or Return continues. On an adopted machine, it
// starts what does not run and checks the programs, but does not bring Kubernetes' control plane back.
func (a *Adoption) Adopt(ctx context.Context) error {
	phase, err := a.Phase()
	if err != nil {
		return err
	}
	if phase == Returning {
		return ErrReturning
	}
	if err := a.Conflict(); err != nil {
		return err
	}
	if phase == Adopted {
		if err := a.run(ctx, []step{a.start()}); err != nil {
			return fmt.Errorf("%w: %w", errUnhealthy, err)
		}
		return nil
	}
	err = a.run(ctx, a.forward())
	if err == nil || ctx.Err() != nil {
		return err
	}
	if back := a.Return(ctx); back != nil {
		return fmt.Errorf("%w\nKubernetes' control plane could not be started again; run \"ctl unadopt\": %w", err, back)
	}
	return fmt.Errorf("%w: %w", errReturned, err)
}

// forward returns the steps to Keelson's control plane.
func (a *Adoption) forward() []step {
	steps := []step{
		at(func() error { return os.MkdirAll(a.Parked, 0o700) }),
		at(func() error { return a.save(Adopting) }),
		{"units", a.Machine.Enable},
	}
	park := func(c string) step { return at(func() error { return move(a.Manifests, a.Parked, manifest(c)) }) }
	// Without etcd, the API server would not end before the kubelet kills it after half a minute.
	clients := components()[1:]
	for _, c := range slices.Backward(clients) {
		steps = append(steps, park(c))
	}
	steps = append(steps,
		step{"end of Kubernetes' control plane", func(ctx context.Context) error { return a.Machine.Ended(ctx, clients...) }},
		park(Etcd), at(func() error { return os.MkdirAll(a.Own, 0o700) }))
	for _, f := range a.Files {
		steps = append(steps, at(func() error {
			return atomicfile.WriteDurably(filepath.Join(a.Own, f.Name), f.Data, 0o600)
		}))
	}
	return append(steps,
		step{"end of Kubernetes' etcd", func(ctx context.Context) error { return a.Machine.Ended(ctx, Etcd) }},
		a.start(),
		at(func() error { return a.save(Adopted) }))
}

// start returns the step that starts Keelson's programs and checks them.
func (a *Adoption) start() step { return step{"Keelson's control plane", a.Machine.Start} }

// Return brings Kubernetes' control plane back. It does nothing on a machine that is not adopted.
func (a *Adoption) Return(ctx context.Context) error {
	phase, err := a.Phase()
	if err != nil || phase == "" {
		return err
	}
	if err := a.Conflict(); err != nil {
		return err
	}
	return a.run(ctx, a.back())
}

// back returns the steps to Kubernetes' control plane.
func (a *Adoption) back() []step {
	steps := []step{
		at(func() error { return a.save(Returning) }),
		at(func() error { return empty(a.Own) }),
		{"end of Keelson's control plane", a.Machine.Stop},
	}
	for _, c := range components() {
		steps = append(steps, at(func() error { return move(a.Parked, a.Manifests, manifest(c)) }))
	}
	return append(steps,
		step{"Kubernetes' control plane", a.Machine.Returned},
		at(a.Machine.Unlink),
		at(func() error { return remove(a.Own) }),
		at(func() error { return remove(a.state()) }),
		at(func() error { return remove(a.Parked) }))
}

// move moves a file to another directory of the same file system, unless it is there already. It replaces no file.
func move(from, to, name string) error {
	source, target := filepath.Join(from, name), filepath.Join(to, name)
	err := unix.Renameat2(unix.AT_FDCWD, source, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrNotExist) && exists(target) {
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s and %s: %w", source, target, errTwo)
	}
	if err != nil {
		return fmt.Errorf("manifest %s: %w", source, err)
	}
	return errors.Join(atomicfile.SyncDir(to), atomicfile.SyncDir(from))
}

// empty removes all files in a directory, which need not exist. A power failure does not bring them back.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("files of Keelson's programs: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("files of Keelson's programs: %w", err)
		}
	}
	return atomicfile.SyncDir(dir)
}

// remove removes a file or an empty directory, which need not exist.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end of the adoption: %w", err)
	}
	return nil
}
