// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Directory is the path of a directory with backups.
type Directory string

// Path returns the path of a file.
func (d Directory) Path(name string) string { return filepath.Join(string(d), name) }

// List calls found for each regular file.
func (d Directory) List(_ context.Context, found func(name string, size int64)) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() { // it may have been removed meanwhile
			found(e.Name(), info.Size())
		}
	}
	return nil
}

// Open opens a file.
func (d Directory) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(d.Path(name))
}

// Remove removes a file.
func (d Directory) Remove(_ context.Context, name string) error { return os.Remove(d.Path(name)) }

// partialPrefix is the prefix of the names of files that are not complete.
const partialPrefix = ".partial-"

// Create makes a file with what write writes.
func (d Directory) Create(_ context.Context, name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	partial, err := os.CreateTemp(string(d), partialPrefix+"*"+filepath.Ext(name))
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name()) //nolint:errcheck // it does not exist any more if all went well
	if err := errors.Join(write(partial), partial.Sync(), partial.Close()); err != nil {
		return err
	}
	if err := os.Rename(partial.Name(), d.Path(name)); err != nil {
		return err
	}
	return atomicfile.SyncDir(string(d))
}

// Clean removes files with a suffix that are not complete, and did not change since the given time.
func (d Directory) Clean(_ context.Context, suffix string, before time.Time) error {
	partial, err := filepath.Glob(d.Path(partialPrefix + "*" + suffix))
	for _, path := range partial {
		if info, statErr := os.Stat(path); statErr == nil && !info.ModTime().After(before) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
