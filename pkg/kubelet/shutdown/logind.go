// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names of logind's objects, interfaces and methods on the system bus.
const (
	service       = "org.freedesktop.login1"
	object        = dbus.ObjectPath("/org/freedesktop/login1")
	face          = "org.freedesktop.login1.Manager"
	signalMember  = "PrepareForShutdown"
	systemd       = "org.freedesktop.systemd1"
	systemdObject = dbus.ObjectPath("/org/freedesktop/systemd1")
	killUnit      = "org.freedesktop.systemd1.Manager.KillUnit"
	logindUnit    = "systemd-logind.service"

	configFile = "99-kubelet.conf"
	configDir  = "/etc/systemd/logind.conf.d"
)

// Bus is the part of a connection to the system bus that this package uses.
type Bus interface {
	Object(service string, path dbus.ObjectPath) dbus.BusObject
	AddMatchSignalContext(ctx context.Context, options ...dbus.MatchOption) error
	Signal(ch chan<- *dbus.Signal)
}

var _ Bus = (*dbus.Conn)(nil)

// System connects to the machine's logind. The caller closes the Closer.
func System() (Logind, io.Closer, error) {
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, nil, err
	}
	return NewLogind(conn, configDir), conn, nil
}

// NewLogind returns the logind on a bus. dir is the directory for logind's configuration files.
func NewLogind(bus Bus, dir string) Logind { return &logind{bus, dir} }

type logind struct {
	bus Bus
	dir string
}

// MaxDelay implements Logind.
func (l *logind) MaxDelay(context.Context) (time.Duration, error) {
	v, err := l.bus.Object(service, object).GetProperty(face + ".InhibitDelayMaxUSec")
	if err != nil {
		return 0, err
	}
	us, ok := v.Value().(uint64)
	if !ok {
		return 0, errors.New("InhibitDelayMaxUSec from logind is not a uint64 as expected")
	}
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond, nil
}

// SetMaxDelay implements Logind. It writes a configuration file, and makes logind read it.
func (l *logind) SetMaxDelay(ctx context.Context, d time.Duration) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%.0f\n", math.Ceil(d.Seconds()))
	if err := os.WriteFile(filepath.Join(l.dir, configFile), []byte(text), 0o644); err != nil {
		return err
	}
	call := l.bus.Object(systemd, systemdObject).CallWithContext(ctx, killUnit, 0, logindUnit, "all",
		int32(syscall.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("reload logind: %w", call.Err)
	}
	return nil
}

// Inhibit implements Logind.
func (l *logind) Inhibit(ctx context.Context) (io.Closer, error) {
	var fd dbus.UnixFD
	call := l.bus.Object(service, object).CallWithContext(ctx, face+".Inhibit", 0,
		"shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
	if call.Err != nil {
		return nil, call.Err
	}
	if err := call.Store(&fd); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Shutdowns implements Logind.
func (l *logind) Shutdowns(ctx context.Context) (<-chan bool, error) {
	err := l.bus.AddMatchSignalContext(ctx, dbus.WithMatchInterface(face), dbus.WithMatchMember(signalMember),
		dbus.WithMatchObjectPath(object))
	if err != nil {
		return nil, err
	}
	signals, out := make(chan *dbus.Signal, 1), make(chan bool)
	l.bus.Signal(signals)
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case s, ok := <-signals:
				if !ok {
					return
				}
				begins, known := beginning(s)
				if !known {
					continue
				}
				select {
				case out <- begins:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// beginning reports whether a signal announces a shutdown (begins is true) or its cancellation. ok
// is false for other signals.
func beginning(s *dbus.Signal) (begins, ok bool) {
	if s.Name != face+"."+signalMember || len(s.Body) == 0 {
		return false, false
	}
	begins, ok = s.Body[0].(bool)
	return begins, ok
}
