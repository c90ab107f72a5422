// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rejoin

import "keelson.dev/keelson/pkg/machine/journal"

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

// HasOld reports whether the machine's store is not set aside yet, if it has one.
func (e *Entry) HasOld() bool { return !e.Copied && (e.Step == Stop || e.Step == SetAside) }

// Journal is the file with the state. It exists only while the control plane has not joined.
type Journal = journal.File[Entry]
