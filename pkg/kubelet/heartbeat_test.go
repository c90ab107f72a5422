// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestHeartbeatStops(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	h := &heartbeat{clock: c}
	c.Step(time.Hour)
	if err := h.check(); err != nil {
		t.Errorf("before the first listing: %v", err)
	}
	h.beat()
	c.Step(heartbeatPatience)
	if err := h.check(); err != nil {
		t.Errorf("during a slow listing: %v", err)
	}
	c.Step(time.Second)
	if err := h.check(); err == nil {
		t.Error("no error for a listing that does not end")
	}
	h.beat()
	if err := h.check(); err != nil {
		t.Errorf("after the next listing: %v", err)
	}
}
