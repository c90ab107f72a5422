// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/beneath"
)

// Log is the log of a running container.
type Log struct {
	ContainerID string
	Path        string
}

// Runtime is the part of the container runtime that a Keeper uses.
type Runtime interface {
	// Logs returns the logs of the running containers.
	Logs(ctx context.Context) ([]Log, error)
	// ReopenLog makes the runtime create a container's log file again after it was renamed.
	ReopenLog(ctx context.Context, containerID string) error
}

// Config holds a Keeper's settings.
type Config struct {
	Runtime Runtime
	Clock   clock.Clock
	Log     *slog.Logger
	// Root is the directory that contains a directory NAMESPACE_NAME_UID for each pod.
	Root string
	// Links is the directory that contains the links to the logs of containers.
	Links string
	// MaxSize is the size in bytes at which a log is rotated. MaxFiles is the maximum number of log
	// files of one run of a container, and at least 2.
	MaxSize  int64
	MaxFiles int
	// Period is the interval between checks of the sizes of all logs.
	Period time.Duration
}

// Keeper rotates the logs of running containers and removes old logs.
type Keeper struct{ cfg Config }

// New returns a Keeper. It fails if MaxFiles is too small.
func New(cfg Config) (*Keeper, error) {
	if cfg.MaxFiles < runtimeOwned {
		return nil, fmt.Errorf("invalid containerLogMaxFiles %d, must be > 1", cfg.MaxFiles)
	}
	return &Keeper{cfg: cfg}, nil
}

// Run rotates logs until ctx ends. If MaxSize is 0 or less, Run returns at once.
func (k *Keeper) Run(ctx context.Context) error {
	if k.cfg.MaxSize <= 0 {
		return nil
	}
	t := k.cfg.Clock.NewTicker(k.cfg.Period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		if err := k.Rotate(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("Failed to rotate container logs", "err", err)
		}
	}
}

// Rotate checks the logs of all running containers once and rotates those that are too large.
func (k *Keeper) Rotate(ctx context.Context) error {
	logs, err := k.cfg.Runtime.Logs(ctx)
	if err != nil {
		return fmt.Errorf("logs of the runtime: %w", err)
	}
	var errs []error
	for _, l := range logs {
		if ctx.Err() != nil {
			break
		}
		if err := k.checkLog(ctx, l); err != nil {
			errs = append(errs, fmt.Errorf("log %s: %w", l.Path, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) checkLog(ctx context.Context, l Log) error {
	dir, err := openDirectory(l.Path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // an error of Close can be ignored for a directory: no written data depends on it
	info, err := dir.Lstat(filepath.Base(l.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The log was renamed, but the kubelet or the runtime was killed before the runtime created the
		// new file.
		return k.cfg.Runtime.ReopenLog(ctx, l.ContainerID)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return beneath.ErrSpecial
	case info.Size() < k.cfg.MaxSize:
		return nil
	}
	names, err := renamed(l.Path)
	if err != nil {
		return err
	}
	p := decide(names, k.cfg.MaxFiles)
	for _, n := range p.remove {
		if err := dir.Remove(filepath.Base(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, n := range p.compress {
		if err := compress(dir, n); err != nil {
			return err
		}
	}
	return k.rename(ctx, l, dir, next(l.Path, names, k.cfg.Clock.Now()))
}

// rename renames the log that is being written, and makes the runtime create a new one. If the
// runtime does not do so, rename restores the old name, so that readers find the log.
func (k *Keeper) rename(ctx context.Context, l Log, dir *os.Root, to string) error {
	from, to := filepath.Base(l.Path), filepath.Base(to)
	if err := dir.Rename(from, to); err != nil {
		return err
	}
	if err := k.cfg.Runtime.ReopenLog(ctx, l.ContainerID); err != nil {
		return errors.Join(fmt.Errorf("reopen: %w", err), dir.Rename(to, from))
	}
	return nil
}

// Sweep removes the log directories of pods for which the function known returns false, and links
// to logs that do not exist.
func (k *Keeper) Sweep(known func(uid types.UID) bool) error {
	entries, err := os.ReadDir(k.cfg.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		uid, ok := podOf(e.Name())
		if !ok || known(uid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(k.cfg.Root, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("remove logs: %w", err))
		}
	}
	return errors.Join(append(errs, sweepLinks(k.cfg.Links))...)
}

// Remove removes the log of one run of a container and its renamed files.
func Remove(path string) error {
	dir, err := openDirectory(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	defer func() { _ = dir.Close() }() // an error of Close can be ignored for a directory: no written data depends on it
	names, err := renamed(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range append(names, path) {
		if err := dir.Remove(filepath.Base(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove log: %w", err)
		}
	}
	return nil
}

// podOf returns the UID in the name of a log directory. ok is false if the name is not that of a
// pod's directory.
func podOf(name string) (types.UID, bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}
