// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// leastWatchdog is the least time that systemd may give: less is not kept on a busy machine.
const leastWatchdog = time.Second

// watchdog tells systemd that the kubelet is well, twice in the time after which systemd starts it anew without (WatchdogSec
// of its unit). A kubelet that is not well says nothing.
func (k *Kubelet) watchdog(ctx context.Context) error {
	limit, err := systemd.SdWatchdogEnabled(false)
	switch {
	case err != nil:
		return fmt.Errorf("watchdog of systemd: %w", err)
	case limit == 0:
		return nil
	case limit <= leastWatchdog:
		return fmt.Errorf("watchdog of systemd: %v is too little, want more than %v", limit, leastWatchdog)
	}
	t := k.cfg.Clock.NewTicker(limit / 2)
	defer t.Stop()
	for {
		if err := k.loop.check(); err != nil {
			k.cfg.Log.Error("Not well, and systemd is not told otherwise", "err", err)
		} else if _, err := systemd.SdNotify(false, systemd.SdNotifyWatchdog); err != nil {
			k.cfg.Log.Error("Systemd not told that the kubelet is well", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}
