// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// heartbeatPatience is how long one listing of the container runtime may take before the kubelet
// counts as unhealthy. It is longer than the default timeout of a call to the runtime.
const heartbeatPatience = 5 * time.Minute

// heartbeat records when the kubelet last began to list the container runtime, to detect a listing
// that hangs. It is safe for concurrent use.
type heartbeat struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	begun time.Time // start of the last listing; zero before the first one
}

// beat records that the kubelet begins to list the container runtime.
func (h *heartbeat) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = h.clock.Now()
}

// check returns an error if the last listing began longer than heartbeatPatience ago. The kubelet
// begins one at least every relistPeriod, unless the last one hangs.
func (h *heartbeat) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.begun.IsZero() && h.clock.Since(h.begun) > heartbeatPatience {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}
