// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"keelson.dev/keelson/pkg/atomicfile"
)

// Entry is the last switch of a machine.
type Entry struct {
	// From and To are the names of the old and the new release.
	From string `json:"from"`
	To   string `json:"to"`
	// Request is the request in the specification of the Machine that asked for the switch.
	Request string `json:"request,omitempty"`
	// Before is the release to which the machine could have returned before the switch.
	Before string `json:"before,omitempty"`
	// Starts is how often a switcher has begun or continued to go forward.
	Starts int `json:"starts,omitempty"`
	// Failure says why the new release does not work. If it is not empty, the machine returns to the old
	// one, or has returned.
	Failure string `json:"failure,omitempty"`
	// Done is true at the end of the switch, in whichever release.
	Done bool `json:"done,omitempty"`
}

// Release returns the release that programs belong to at the end of the switch, as far as it is known.
func (e *Entry) Release() string {
	if e.Failure != "" {
		return e.From
	}
	return e.To
}

// Previous returns the release to which the machine can return after the switch, or "". A switch to
// that release leaves none: a second return would undo the first one.
func (e *Entry) Previous() string {
	switch {
	case !e.Done || e.Failure != "":
		return e.Before
	case e.To == e.Before:
		return ""
	default:
		return e.From
	}
}

// Journal is the file with the last switch of a machine.
type Journal string

// Load returns the entry of the journal, or nil if there has been no switch.
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
