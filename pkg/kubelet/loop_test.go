// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestLoopThatHangs(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	l := &loop{clock: c}
	c.Step(time.Hour)
	if err := l.check(); err != nil {
		t.Errorf("before the first turn: %v", err)
	}
	l.turn()
	c.Step(loopPatience)
	if err := l.check(); err != nil {
		t.Errorf("in a turn that takes its time: %v", err)
	}
	c.Step(time.Second)
	if err := l.check(); err == nil {
		t.Error("a turn that does not end is not noticed")
	}
	l.turn()
	if err := l.check(); err != nil {
		t.Errorf("after it went on: %v", err)
	}
}
