// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// jobTimeout is the maximum time that systemd may take to start, change or stop a slice.
const jobTimeout = 30 * time.Second

// Slices creates the cgroups above containers as slices of systemd, because systemd would reset the
// limits of cgroups that it did not create. It is safe for concurrent use.
type Slices struct {
	dial func() (*systemd.Conn, error)

	mu   sync.Mutex
	conn *systemd.Conn
}

// System returns Slices that use the systemd that runs on this machine.
func System() *Slices {
	return NewSlices(func() (*systemd.Conn, error) { return systemd.NewWithContext(context.Background()) })
}

// NewSlices returns Slices that connect to systemd with dial. They connect again after the
// connection is lost.
func NewSlices(dial func() (*systemd.Conn, error)) *Slices { return &Slices{dial: dial} }

// Close closes the connection to systemd.
func (s *Slices) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// ask calls systemd. If the connection is lost, it connects again and repeats the call once.
func (s *Slices) ask(what func(*systemd.Conn) error) error {
	for first := true; ; first = false {
		conn, err := s.connection()
		if err != nil {
			return err
		}
		err = what(conn)
		var answer dbus.Error
		if err == nil || errors.As(err, &answer) || errors.Is(err, errJob) || !first {
			return err
		}
		s.drop(conn)
	}
}

func (s *Slices) connection() (*systemd.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		conn, err := s.dial()
		if err != nil {
			return nil, fmt.Errorf("reach systemd: %w", err)
		}
		s.conn = conn
	}
	return s.conn, nil
}

// drop closes the connection conn, unless another goroutine has already replaced it.
func (s *Slices) drop(conn *systemd.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn.Close()
		s.conn = nil
	}
}

// start starts a slice with the given limits, or updates the limits if the slice is running.
func (s *Slices) start(name, parent string, limits []systemd.Property) error {
	properties := []systemd.Property{
		systemd.PropDescription("cgroup of the kubelet " + name), property("DefaultDependencies", false),
		property("MemoryAccounting", true), property("CPUAccounting", true), property("TasksAccounting", true),
	}
	if parent != "" {
		properties = append(properties, systemd.PropWants(parent))
	}
	err := s.ask(func(conn *systemd.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
		defer cancel()
		done := make(chan string, 1)
		_, err := conn.StartTransientUnitContext(ctx, name, "replace", append(properties, limits...), done)
		if err == nil {
			err = wait(ctx, done)
		}
		if err != nil && !named(err, errExists) {
			_ = conn.ResetFailedUnitContext(ctx, name) // otherwise the slice could not be started again
		}
		return err
	})
	switch {
	case named(err, errExists):
		return s.set(name, limits)
	case err != nil:
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// set changes limits of a running slice. The change lasts until the machine reboots.
func (s *Slices) set(name string, limits []systemd.Property) error {
	if len(limits) == 0 {
		return nil
	}
	err := s.ask(func(conn *systemd.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
		defer cancel()
		return conn.SetUnitPropertiesContext(ctx, name, true, limits...)
	})
	if err != nil {
		return fmt.Errorf("limits of %s: %w", name, err)
	}
	return nil
}

// stop stops a slice and kills all processes in it. It succeeds if the slice does not exist.
func (s *Slices) stop(ctx context.Context, name string) error {
	err := s.ask(func(conn *systemd.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, jobTimeout)
		defer cancel()
		done := make(chan string, 1)
		if _, err := conn.StopUnitContext(ctx, name, "replace", done); err != nil {
			return err
		}
		if err := wait(ctx, done); err != nil {
			return err
		}
		_ = conn.ResetFailedUnitContext(ctx, name) // systemd keeps a unit that has failed until it is reset
		return nil
	})
	if err != nil && !named(err, errNoUnit) {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return nil
}

// Names of D-Bus errors that systemd returns.
const (
	errExists = "org.freedesktop.systemd1.UnitExists"
	errNoUnit = "org.freedesktop.systemd1.NoSuchUnit"
)

var errJob = errors.New("the job is")

// wait waits until a job of systemd has ended, and returns an error if the job failed.
func wait(ctx context.Context, done <-chan string) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w not over: %w", errJob, ctx.Err())
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%w %s", errJob, result)
		}
		return nil
	}
}

func named(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

// infinity is the value by which systemd represents "no limit".
const infinity = uint64(math.MaxUint64)

// hundredth is one percent of a second, in microseconds. systemd rounds CPU quotas to whole
// percents.
const hundredth = 10000

// quotaProperties returns systemd's properties for a CPU quota. It rounds the quota up to whole
// percents, because systemd supports only these; the exact quota is written to the cgroup's file.
func quotaProperties(quota, period int64) []systemd.Property {
	second := infinity
	if quota > 0 && period > 0 {
		second = uint64(quota) * 1000000 / uint64(period)
		second = (second + hundredth - 1) / hundredth * hundredth
	}
	out := []systemd.Property{property("CPUQuotaPerSecUSec", second)}
	if period > 0 && period != defaultPeriod {
		out = append(out, property("CPUQuotaPeriodUSec", uint64(period)))
	}
	return out
}

// defaultPeriod is systemd's default period of CPU quotas, in microseconds. A period of this length
// is not passed to systemd, because old versions of systemd do not support the property.
const defaultPeriod = 100000

// properties returns systemd's properties for the given limits. Limits of huge pages have no
// property.
func (m *Manager) properties(l qos.PodLimits) []systemd.Property {
	var out []systemd.Property
	add := func(name string, value int64) { out = append(out, property(name, uint64(value))) }
	if l.Shares != nil && m.unified {
		add("CPUWeight", Weight(*l.Shares))
	} else if l.Shares != nil {
		add("CPUShares", *l.Shares)
	}
	if l.Quota != nil && *l.Quota != 0 {
		out = append(out, quotaProperties(*l.Quota, *l.Period)...)
	}
	if l.Memory != nil && *l.Memory > 0 {
		add(map[bool]string{true: "MemoryMax", false: "MemoryLimit"}[m.unified], *l.Memory)
	}
	if l.Pids > 0 {
		add("TasksMax", l.Pids)
	}
	if m.unified && l.Min > 0 {
		add("MemoryMin", l.Min)
	}
	if m.unified && l.Low > 0 {
		add("MemoryLow", l.Low)
	}
	if m.unified && l.High > 0 {
		add("MemoryHigh", l.High)
	} else if m.unified && l.High < 0 {
		out = append(out, property("MemoryHigh", infinity))
	}
	return out
}

// unit returns the name of the slice at path, or "" for the root cgroup.
func unit(path string) string {
	if path == "/" {
		return ""
	}
	return filepath.Base(path)
}

// slicePath returns the path of the slice whose name consists of the given parts. For example, the
// slice a-b.slice is inside a.slice. Dashes within a part are replaced by underscores.
func slicePath(parts []string) string {
	path, name := "/", ""
	for i, part := range parts {
		if part = strings.ReplaceAll(strings.TrimSuffix(part, ".slice"), "-", "_"); i > 0 {
			name += "-"
		}
		name += part
		path = filepath.Join(path, name+".slice")
	}
	return path
}

// reserved returns the path of a cgroup of the system or of Kubernetes. With the systemd driver,
// the last element of name is the name of a slice.
func (m *Manager) reserved(name string) string {
	if m.slices.Load() == nil {
		return name
	}
	return slicePath(strings.Split(strings.TrimSuffix(filepath.Base(name), ".slice"), "-"))
}
