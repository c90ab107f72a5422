// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import "time"

// deadline is the earliest of several times. The zero value has no time.
type deadline struct {
	at  time.Time
	set bool
}

// add makes t the deadline if it is earlier than all times that were added before.
func (d *deadline) add(t time.Time) {
	if !d.set || t.Before(d.at) {
		d.at, d.set = t, true
	}
}

// limitOf returns the time limit of a toleration. A negative number of seconds counts as 0.
func limitOf(seconds int64) time.Duration { return time.Duration(max(seconds, 0)) * time.Second }
