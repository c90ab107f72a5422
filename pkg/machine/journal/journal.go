// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal keeps the state of work that a machine must finish in a file, so that the work goes on after the
// process or the machine has ended.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"keelson.dev/keelson/pkg/atomicfile"
)

// File is the path of a journal whose entry is an E. Only one goroutine at a time may write it.
type File[E any] string

// Load returns the entry of the journal, or nil if the file does not exist.
func (f File[E]) Load() (*E, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	e := new(E)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("journal %s: %w", string(f), err)
	}
	return e, nil
}

// Save replaces the entry of the journal. When it returns nil, the entry is on the disk.
func (f File[E]) Save(e *E) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return atomicfile.WriteDurably(string(f), append(data, '\n'), 0o600)
}

// Remove removes the journal. It need not exist.
func (f File[E]) Remove() error {
	if err := os.Remove(string(f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
