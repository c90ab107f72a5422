// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import "keelson.dev/keelson/pkg/machine/journal"

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
type Journal = journal.File[Entry]
