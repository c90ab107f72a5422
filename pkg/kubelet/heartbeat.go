// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// heartbeatPatience is how long one listing of the runtime may take: longer than any call to it.
const heartbeatPatience = 5 * time.Minute

// heartbeat records that the kubelet still follows its runtime. It is safe for concurrent use.
type heartbeat struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	begun time.Time // start of the last listing; zero before the first
}

// beat records that a listing begins.
func (h *heartbeat) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = h.clock.Now()
}

// check fails if the last listing has not ended in time.
func (h *heartbeat) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.begun.IsZero() && h.clock.Since(h.begun) > heartbeatPatience {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}
