// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"keelson.dev/keelson/pkg/filelock"
	"keelson.dev/keelson/pkg/machine/rejoin"
	"keelson.dev/keelson/pkg/machine/upgrade"
)

// changeLock is the path of the file that is locked while a command changes the control plane of this machine, and
// while the agent writes the journal of a switch of releases or of rejoining. So each of them sees whether another
// one has begun.
const changeLock = state + "/change.lock"

var (
	errBusy = errors.New("another command changes the control plane of this machine: wait for its end, and repeat " +
		"this one")
	errSwitching = errors.New("this machine switches to another release: wait for the end, and see " +
		"\"journalctl -u keelson-switch\"")
	errRejoins = errors.New("the control plane of this machine joins a restored cluster: wait for the end, and see " +
		"\"journalctl -u keelson-rejoin\"; if it cannot join, run \"ctl reset\" and \"ctl join --control-plane\" on this " +
		"machine")
)

// exclusively calls f while no other command changes the control plane of this machine, and the agent begins
// neither a switch of releases nor rejoining. It does not wait.
func exclusively(f func() error) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	unlock, err := filelock.TryLock(changeLock)
	if errors.Is(err, filelock.ErrLocked) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// undisturbed is exclusively, but it returns an error while the machine switches to another release.
func undisturbed(f func() error) error {
	return exclusively(func() error {
		if err := notSwitching(); err != nil {
			return err
		}
		return f()
	})
}

// notSwitching returns an error while the machine switches to another release. The switcher restarts programs, so
// no other command may need one to stand still.
func notSwitching() error { return ended(switchJournal, switching) }

// ended returns an error while the switch in a journal is not done, or its link exists, which is removed last. A
// journal that cannot be read does not count: a restore must be possible then.
func ended(j upgrade.Journal, link string) error {
	if e, _ := j.Load(); e != nil && !e.Done || exists(link) {
		return errSwitching
	}
	return nil
}

// notRejoining returns an error while the control plane joins a restored cluster.
func notRejoining(j rejoin.Journal) error {
	if e, err := j.Load(); e != nil || err != nil {
		return errors.Join(errRejoins, err)
	}
	return nil
}

// stopAgent stops the agent and the units that it starts: it prevents that a switch or rejoining begins, and ends
// the program of one that runs. The agent ends first, because it would start these units again. Its last start of
// one of them may still be in systemd's queue.
func stopAgent(ctx context.Context) error {
	return errors.Join(stopQueued(ctx, unit(agentName)), stopQueued(ctx, unit(switcher), unit(rejoiner)))
}

// unknownUnit is the status with which systemctl ends if it does not know a unit. It has stopped the others then.
const unknownUnit = 5

// stopQueued stops units also if they have not started yet. Those that systemd does not know do not run.
func stopQueued(ctx context.Context, units ...string) error {
	err := systemctl(ctx, append([]string{"stop"}, units...)...)
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() == unknownUnit {
		return nil
	}
	return err
}
