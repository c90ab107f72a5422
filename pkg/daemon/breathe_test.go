// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import "testing"

// A heap that is collected twice in a breath gets room until it has not been
// collected for some time, and no less than it has at rest.
func TestLung(t *testing.T) {
	var l lung
	const mb = 1 << 20
	for i, step := range []struct {
		cycles, live uint64
		percent      int
		rest         bool
	}{
		{0, 10 * mb, 0, false},
		{1, 10 * mb, 0, false}, // one collection is no work
		{3, 16 * mb, 800, false},
		{3, 16 * mb, 800, false},
		{4, 256 * mb, 100, false},
		{4, 32 * mb, 400, false},
		{4, 32 * mb, 400, false},
		{4, 32 * mb, 400, false},
		{4, 32 * mb, 400, false},
		{4, 32 * mb, 100, true},
		{4, 32 * mb, 0, false},
	} {
		if percent, rest := l.next(step.cycles, step.live); percent != step.percent || rest != step.rest {
			t.Errorf("step %d: %d, %v; want %d, %v", i, percent, rest, step.percent, step.rest)
		}
	}
}
