// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rejoin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Step is what a control plane that joins a restored cluster does next.
type Step string

// The steps in their order.
const (
	Stop     Step = "Stop"
	SetAside Step = "SetAside"
	Join     Step = "Join"
	Vote     Step = "Vote"
	Start    Step = "Start"
)

// Entry is the state of a control plane that joins a restored cluster.
type Entry struct {
	// Epoch is the epoch of the cluster that the control plane joins.
	Epoch int64 `json:"epoch"`
	Step  Step  `json:"step"`
	// Copied is true if the machine's store has at most an incomplete copy of another restored cluster, and
	// not the history that this machine had before.
	Copied bool `json:"copied,omitempty"`
}

// Journal is the file with the state. It exists only while the control plane has not joined.
type Journal string

// Load returns the entry of the journal, or nil if there is none.
func (j Journal) Load() (*Entry, error) {
	data, err := os.ReadFile(string(j))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	e := &Entry{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("journal %s: %w", string(j), err)
	}
	return e, nil
}

// Save replaces the entry of the journal. When it returns, the entry is on the disk.
func (j Journal) Save(e *Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return atomicfile.WriteDurably(string(j), append(data, '\n'), 0o600)
}

// Remove removes the journal.
func (j Journal) Remove() error {
	if err := os.Remove(string(j)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
