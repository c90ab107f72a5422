// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"
)

func TestBooted(t *testing.T) {
	if got := booted("cpu  1 2 3\nbtime 1700000000\nprocesses 5\n"); !got.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("booted at %v", got)
	}
	if got := booted("cpu  1 2 3\n"); !got.IsZero() {
		t.Errorf("booted at %v although the statistics have no boot time", got)
	}
}
