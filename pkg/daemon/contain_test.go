// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import "testing"

func TestContainedPercent(t *testing.T) {
	const mb = 1 << 20
	for live, want := range map[uint64]int{0: 100, 20 * mb: 100, 60 * mb: 100, 80 * mb: 50, 100 * mb: 20, 160 * mb: 17} {
		if got := containedPercent(live, 0); got != want {
			t.Errorf("with %d MB in use: %d, want %d", live/mb, got, want)
		}
	}
}
