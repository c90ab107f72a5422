// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Machine is what Run needs of a machine.
type Machine interface {
	// Programs returns the programs that the machine runs, in the order in which they are restarted to get
	// from one release to another.
	Programs(ctx context.Context, from, to string) ([]string, error)
	// Import imports the images of a release and pins them, so that its add-ons need no registry. It returns
	// false if that is not possible now because the container runtime cannot be reached.
	Import(ctx context.Context, release string) (imported bool, err error)
	// Use makes a release the one whose programs systemd starts from now on. When it returns, this is
	// on the disk. Running programs go on.
	Use(ctx context.Context, release string) error
	// Runs returns the release of a program that runs, or "" if the program does not run.
	Runs(ctx context.Context, program string) (string, error)
	// Restart restarts a program, or starts it if it does not run. The program may end at once: Healthy
	// notices that.
	Restart(ctx context.Context, program string) error
	// Healthy waits until a program is healthy. It returns an error if the program cannot become healthy,
	// or if a time limit is over.
	Healthy(ctx context.Context, program string) error
}

// maxStarts is how often a switch goes forward. If the machine or the switcher ends so often in the
// middle of a switch, the new release may be the reason.
const maxStarts = 3

var errStarts = errors.New("the machine or the switcher was stopped too often during the switch")

// Run ends the switch in the journal, if one has begun. If the new release does not work, Run returns
// to the old one; this is no error. Run returns an error if ctx ends, if the journal cannot be read or
// written, or if the old release cannot be used again. Call it again then.
func Run(ctx context.Context, journal Journal, m Machine, log *slog.Logger) error {
	e, err := journal.Load()
	if err != nil || e == nil || e.Done {
		return err
	}
	log = log.With("from", e.From, "to", e.To)
	if e.Failure == "" {
		if err := forward(ctx, journal, e, m); err != nil {
			return err
		}
	}
	if e.Failure != "" && !e.Done {
		log.Error("The release does not work; returning to the old one", "err", e.Failure)
		if err := back(ctx, e, m, log); err != nil {
			return err
		}
	}
	e.Done = true
	if err := journal.Save(e); err != nil {
		return err
	}
	log.Info("The switch has ended", "release", e.Release())
	return nil
}

// forward brings all programs to the new release. If that is not possible, it writes why to the journal.
func forward(ctx context.Context, journal Journal, e *Entry, m Machine) error {
	e.Starts++
	err := journal.Save(e)
	if err != nil {
		return err
	}
	if e.Starts > maxStarts {
		err = errStarts
	} else {
		err = bring(ctx, e, m)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err() // the machine shuts down, which says nothing about the release
	}
	e.Failure = err.Error()
	return journal.Save(e)
}

// bring brings all programs to the new release, one after the other. It stops at the first failure. The images
// come before anything stops, unless only the new release can run the container runtime.
func bring(ctx context.Context, e *Entry, m Machine) error {
	programs, err := m.Programs(ctx, e.From, e.To)
	if err != nil {
		return err
	}
	imported, err := m.Import(ctx, e.To)
	if err != nil {
		return err
	}
	if err := m.Use(ctx, e.To); err != nil {
		return err
	}
	for _, p := range programs {
		if err := restart(ctx, e.To, p, m); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if !imported {
		_, err = m.Import(ctx, e.To)
	}
	return err
}

var errOld = errors.New("it could not be restarted")

// restart restarts a program unless it belongs to the release already, and waits until it is healthy.
func restart(ctx context.Context, release, program string, m Machine) error {
	runs, err := m.Runs(ctx, program)
	if err != nil {
		return err
	}
	if runs != release {
		if err := m.Restart(ctx, program); err != nil {
			return err
		}
	}
	if err := m.Healthy(ctx, program); err != nil {
		return err
	}
	if runs, err = m.Runs(ctx, program); err == nil && runs != release {
		err = errOld
	}
	return err
}

// back brings all programs to the old release. Unlike bring, it goes on after a failure of a program,
// because there is no better release; it adds the failure to the entry. Programs that run in the old release
// come last: a look at their health must not delay the return of the others.
func back(ctx context.Context, e *Entry, m Machine, log *slog.Logger) error {
	programs, err := m.Programs(ctx, e.To, e.From)
	if err != nil {
		return err
	}
	if err := m.Use(ctx, e.From); err != nil {
		return err
	}
	var changed, unchanged []string
	for _, p := range programs {
		switch runs, err := m.Runs(ctx, p); {
		case err != nil:
			return err
		case runs == e.From:
			unchanged = append(unchanged, p)
		default:
			changed = append(changed, p)
		}
	}
	failed := []error{}
	for _, p := range append(changed, unchanged...) {
		err := restart(ctx, e.From, p, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			log.Error("A program of the old release is not healthy", "program", p, "err", err)
			failed = append(failed, fmt.Errorf("%s: %w", p, err))
		}
	}
	// The new release may have other images of the same names.
	if _, err := m.Import(ctx, e.From); err != nil {
		failed = append(failed, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(failed) > 0 {
		e.Failure += "; after the return to " + e.From + ": " + errors.Join(failed...).Error()
	}
	return nil
}
