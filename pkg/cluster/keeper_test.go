// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"
)

// TestNextPause checks that the pause before the restart of a process that keeps ending grows, and
// that a process that ran for long enough is restarted at once.
func TestNextPause(t *testing.T) {
	for name, tc := range map[string]struct{ pause, life, want time.Duration }{
		"first death":        {0, time.Second, firstPause},
		"second death":       {firstPause, time.Second, 2 * firstPause},
		"many deaths":        {longPause, time.Second, longPause},
		"after a long life":  {longPause, goodLife, 0},
		"just not long life": {0, goodLife - 1, firstPause},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextPause(tc.pause, tc.life); got != tc.want {
				t.Errorf("nextPause(%v, %v) = %v, want %v", tc.pause, tc.life, got, tc.want)
			}
		})
	}
}
