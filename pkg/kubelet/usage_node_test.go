// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &rate{}
	for i, step := range []struct {
		after time.Duration
		total uint64
		want  int64 // -1: not known
	}{
		{0, 100, -1},
		{500 * time.Millisecond, 900, -1}, // too soon
		{1500 * time.Millisecond, 4100, 2000},
		{100 * time.Millisecond, 9000, 2000},
		{10 * time.Second, 100, -1}, // counted anew
		{10 * time.Second, 100, 0},
		{-time.Hour, 200, -1}, // the clock was set back
		{2 * time.Second, 400, 100},
	} {
		now = now.Add(step.after)
		got := int64(-1)
		if p := r.of(now, step.total); p != nil {
			got = int64(*p)
		}
		if got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}
