// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// leastWatchdog is the lower bound of WatchdogSec; the setting must be longer. With a shorter
// setting, the notifications could be too late on a busy machine.
const leastWatchdog = time.Second

// watchdog notifies systemd's watchdog as long as the kubelet is healthy. Unless systemd receives a
// notification within WatchdogSec, a setting of the kubelet's unit, it restarts the kubelet.
// watchdog therefore notifies it twice in that time.
func watchdog(ctx context.Context, cfg Config, h *heartbeat) error {
	limit, err := systemd.SdWatchdogEnabled(false)
	switch {
	case err != nil:
		return fmt.Errorf("watchdog of systemd: %w", err)
	case limit == 0:
		return nil
	case limit <= leastWatchdog:
		return fmt.Errorf("watchdog of systemd: %v is too short, must be more than %v", limit, leastWatchdog)
	}
	t := cfg.Clock.NewTicker(limit / 2)
	defer t.Stop()
	for {
		if err := h.check(); err != nil {
			cfg.Log.Error("Kubelet is unhealthy, not notifying systemd's watchdog", "err", err)
		} else if _, err := systemd.SdNotify(false, systemd.SdNotifyWatchdog); err != nil {
			cfg.Log.Error("Failed to notify systemd's watchdog", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}
