// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
)

// LimitError says that the node has as many volumes of a driver as it can have. The scheduler did
// not know that, so the pod must run on another node.
type LimitError struct {
	// Volume is the volume that cannot be attached. Message is the driver's message.
	Volume, Message string
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf(
		"Node has reached its volume attachment limit, rejecting pod. unattached volumes=[%s]: %s", e.Volume, e.Message)
}

// exhausted reports whether attaching failed because the node cannot have more volumes.
func exhausted(e *storagev1.VolumeError) bool {
	return e.ErrorCode != nil && codes.Code(*e.ErrorCode) == codes.ResourceExhausted
}

// full handles an error of attaching a volume. If it is a LimitError, full asks the driver again
// how many volumes the node can have. If the driver has no update period, full returns an ordinary
// error instead, so that the pod waits for its volume. Other errors are returned unchanged.
func (m *Manager) full(ctx context.Context, driver string, err error) error {
	limit := (*LimitError)(nil)
	if !errors.As(err, &limit) {
		return err
	}
	if m.cfg.UpdatePeriod(driver) == 0 {
		return errors.New(limit.Message)
	}
	d, found := m.driver(driver)
	if found == nil {
		found = m.update(ctx, d)
	}
	if found != nil {
		m.cfg.Log.Warn("Failed to read the volume limit of a CSI driver", "driver", driver, "err", found)
	}
	return err
}

// update asks a driver again how many volumes the node can have, and publishes the answer.
func (m *Manager) update(ctx context.Context, d *driver) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err == nil {
		err = m.republish(ctx, d, info)
	}
	if err != nil {
		return fmt.Errorf("update driver %s: %w", d.name, err)
	}
	return nil
}

// republish publishes a driver's answer, unless the driver has unregistered or been replaced
// meanwhile.
func (m *Manager) republish(ctx context.Context, d *driver, info *csi.NodeGetInfoResponse) error {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	if now, err := m.driver(d.name); err != nil || now != d {
		return nil
	}
	return m.publish(ctx, d.name, info)
}

// renew updates the drivers whose period has ended, and returns the time of the next update, or
// zero if no driver has a period.
func (m *Manager) renew(ctx context.Context) (time.Time, error) {
	m.mu.Lock()
	drivers := slices.Collect(maps.Values(m.drivers))
	m.mu.Unlock()
	var next time.Time
	var errs []error
	for _, d := range drivers {
		period := m.cfg.UpdatePeriod(d.name)
		if period == 0 {
			continue
		}
		due := d.updated.Add(period)
		if now := m.cfg.Clock.Now(); !now.Before(due) {
			errs = append(errs, m.update(ctx, d))
			d.updated = now
			due = now.Add(period)
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, errors.Join(errs...)
}
