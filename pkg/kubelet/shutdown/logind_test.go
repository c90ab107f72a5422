// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// fakeBus simulates logind and systemd on a system bus.
type fakeBus struct {
	dbus.BusObject
	dir     string
	calls   []string
	signals chan<- *dbus.Signal
	fd      int
}

func (b *fakeBus) Object(string, dbus.ObjectPath) dbus.BusObject { return b }

func (b *fakeBus) AddMatchSignalContext(context.Context, ...dbus.MatchOption) error { return nil }

func (b *fakeBus) Signal(ch chan<- *dbus.Signal) { b.signals = ch }

func (b *fakeBus) GetProperty(name string) (dbus.Variant, error) {
	if name != "org.freedesktop.login1.Manager.InhibitDelayMaxUSec" {
		return dbus.Variant{}, fmt.Errorf("no %s", name)
	}
	seconds := 5
	if text, err := os.ReadFile(filepath.Join(b.dir, configFile)); err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			_, _ = fmt.Sscanf(line, "InhibitDelayMaxSec=%d", &seconds) // lines that do not match leave seconds unchanged
		}
	}
	return dbus.MakeVariant(uint64(seconds) * 1e6), nil
}

func (b *fakeBus) CallWithContext(_ context.Context, method string, _ dbus.Flags, args ...any) *dbus.Call {
	b.calls = append(b.calls, method+fmt.Sprintf("%v", args))
	return &dbus.Call{Body: []any{dbus.UnixFD(b.fd)}}
}

func TestLogind(t *testing.T) {
	fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	bus := &fakeBus{dir: filepath.Join(t.TempDir(), "logind.conf.d"), fd: fd}
	l := NewLogind(bus, bus.dir)
	if d, err := l.MaxDelay(t.Context()); err != nil || d != 5*time.Second {
		t.Fatalf("%s, %v", d, err)
	}
	if err := l.SetMaxDelay(t.Context(), 29500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if d, err := l.MaxDelay(t.Context()); err != nil || d != 30*time.Second {
		t.Errorf("%s, %v", d, err)
	}
	held, err := l.Inhibit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Close(); err != nil { // closes the descriptor, which releases the inhibitor lock
		t.Error(err)
	}
	want := "[org.freedesktop.systemd1.Manager.KillUnit[systemd-logind.service all 1] " +
		"org.freedesktop.login1.Manager.Inhibit[shutdown kubelet Kubelet needs time to handle node shutdown delay]]"
	if got := fmt.Sprint(bus.calls); got != want {
		t.Errorf("%s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := l.Shutdowns(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		bus.signals <- &dbus.Signal{Name: "org.freedesktop.login1.Manager.SessionNew", Body: []any{true}}
		bus.signals <- &dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown"}
		bus.signals <- &dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{true}}
		bus.signals <- &dbus.Signal{Name: "org.freedesktop.login1.Manager.PrepareForShutdown", Body: []any{false}}
	}()
	if a, b := <-events, <-events; !a || b {
		t.Errorf("begins %v, called off %v", a, b)
	}
	cancel()
	if _, open := <-events; open {
		t.Error("more events")
	}
}
