// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rejoin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"keelson.dev/api/clock"
)

// Delays between attempts of a step.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Machine is what Run needs of a machine. All methods can be repeated after an error, and after an interruption
// at any point.
type Machine interface {
	// Highest returns the highest epoch that the machine knows.
	Highest() int64
	// Joinable returns nil if the machine could join the cluster that was restored with an epoch now. It changes
	// nothing.
	Joinable(ctx context.Context, epoch int64) error
	// Stop ends the control plane's programs and prevents that they start again. When it returns nil, none
	// of them runs.
	Stop(ctx context.Context, epoch int64) error
	// SetAside moves the data of etcd aside, if there are any. If copied is true, it deletes them.
	SetAside(ctx context.Context, epoch int64, copied bool) error
	// Join makes the machine's etcd a member without a vote of the cluster that was restored with an epoch.
	// Data of etcd are from an earlier call.
	Join(ctx context.Context, epoch int64) error
	// Vote gives the member a vote when it has caught up. If an administrator has removed the member meanwhile,
	// Vote makes another one.
	Vote(ctx context.Context, epoch int64) error
	// Start starts the control plane's programs, and waits until they work.
	Start(ctx context.Context, epoch int64) error
}

// Run makes the machine's control plane join the restored cluster, if the journal says so. It returns nil at
// the end of that, and an error if ctx ends. report is called after each attempt of a step with the entry
// before it and its error, and with nil at the end.
func Run(ctx context.Context, j Journal, m Machine, clk clock.Clock, log *slog.Logger,
	report func(*Entry, error)) error {
	last, delay := "", firstRetry
	for {
		e, err := j.Load()
		if err == nil && e == nil {
			report(nil, nil)
			return nil
		}
		if err == nil {
			err = advance(ctx, j, e, m)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			report(e, err)
		}
		if err == nil {
			log.Info("Control plane joins the restored cluster", "done", e.Step, "epoch", e.Epoch)
			last, delay = "", firstRetry
			continue
		}
		if text := err.Error(); text != last {
			log.Warn("Control plane has not joined the restored cluster yet", "err", err)
			last = text
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clk.After(delay):
		}
		delay = min(2*delay, lastRetry)
	}
}

// advance takes the step of an entry, and writes the next one to the journal.
func advance(ctx context.Context, j Journal, e *Entry, m Machine) error {
	if highest := m.Highest(); highest > e.Epoch {
		return j.Save(again(e, highest))
	}
	next := *e
	var err error
	if e.Step == Stop || e.Step == SetAside {
		err = m.Joinable(ctx, e.Epoch)
	}
	switch {
	case err != nil:
	case e.Step == Stop:
		next.Step, err = SetAside, m.Stop(ctx, e.Epoch)
	case e.Step == SetAside:
		next.Step, err = Join, m.SetAside(ctx, e.Epoch, e.Copied)
		next.Copied = false
	case e.Step == Join:
		next.Step, err = Vote, m.Join(ctx, e.Epoch)
	case e.Step == Vote:
		next.Step, err = Start, m.Vote(ctx, e.Epoch)
	case e.Step == Start:
		if err := m.Start(ctx, e.Epoch); err != nil {
			return fmt.Errorf("%s: %w", e.Step, err)
		}
		return j.Remove()
	default:
		return fmt.Errorf("journal: unknown step %q", e.Step)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Step, err)
	}
	return j.Save(&next)
}

// again returns the entry after a further restore of the cluster. A member without a vote has at most what others
// have. As soon as it may have a vote, its data count as a history of its own.
func again(e *Entry, epoch int64) *Entry {
	return &Entry{Epoch: epoch, Step: Stop, Copied: e.Copied || e.Step == Join}
}
