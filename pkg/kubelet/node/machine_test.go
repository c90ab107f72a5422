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

func TestInUserNamespace(t *testing.T) {
	for ids, want := range map[string]bool{
		"": false, "         0          0 4294967295": false, "0 100000 65536": true, "0 1000 1\n1 100000 65536": true,
	} {
		if got := inUserNamespace(ids); got != want {
			t.Errorf("%q: %v, want %v", ids, got, want)
		}
	}
}
