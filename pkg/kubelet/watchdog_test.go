// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/api/clock"
)

// systemdSocket replaces systemd's notification socket. The function that it returns counts the
// notifications since its last call.
func systemdSocket(t *testing.T) func() int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	return func() int {
		b := make([]byte, 100)
		for told := 0; ; told++ {
			n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
			if err != nil {
				return told
			}
			if string(b[:n]) != "WATCHDOG=1" {
				t.Errorf("notification %q", b[:n])
			}
		}
	}
}

// TestWatchdog checks that a healthy kubelet notifies systemd twice per WatchdogSec, and that a
// kubelet that hangs does not notify it.
func TestWatchdog(t *testing.T) {
	told := systemdSocket(t)
	t.Setenv("WATCHDOG_USEC", "1200000000")
	synctest.Test(t, func(t *testing.T) {
		cfg, h := Config{Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}, &heartbeat{clock: clock.Real()}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if err := watchdog(ctx, cfg, h); err != nil {
				t.Error(err)
			}
		}()
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if got := told(); got != want {
				t.Errorf("%s: %d notifications, want %d", when, got, want)
			}
		}
		expect("at first", 1)
		h.beat()
		<-time.After(10*time.Minute + time.Second)
		expect("a turn that does not end", 0)
		<-time.After(8 * time.Minute)
		h.beat()
		<-time.After(2 * time.Minute)
		expect("the next turn", 1)
		cancel()
	})
}

func TestInvalidWatchdog(t *testing.T) {
	for value, ok := range map[string]bool{"": true, "1000000": false, "soon": false} {
		t.Setenv("WATCHDOG_USEC", value)
		if err := watchdog(t.Context(), Config{}, nil); (err == nil) != ok {
			t.Errorf("WATCHDOG_USEC=%q: %v", value, err)
		}
	}
}
