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

// LimitError means that a volume cannot be attached because the node already has the maximum number
// of volumes of its driver. The pod cannot run on this node: the scheduler chose it without knowing
// that the maximum is reached.
type LimitError struct {
	// Volume is the handle of the volume that cannot be attached. Message is the driver's error
	// message.
	Volume, Message string
}

// Error implements error. The text is that of Kubernetes.
func (e *LimitError) Error() string {
	return fmt.Sprintf(
		"Node has reached its volume attachment limit, rejecting pod. unattached volumes=[%s]: %s", e.Volume, e.Message)
}

// exhausted reports whether attaching failed because the node has the maximum number of volumes.
func exhausted(e *storagev1.VolumeError) bool {
	return e.ErrorCode != nil && codes.Code(*e.ErrorCode) == codes.ResourceExhausted
}

// full handles an error of waiting for a volume to be attached. For a LimitError, it asks the
// driver again how many volumes the node can have and publishes the answer. If the driver has no
// update period, full replaces the LimitError by an ordinary error, so that the pod keeps waiting
// for its volume. It returns all other errors unchanged.
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

// update asks a driver again how many volumes the node can have, and publishes the answer in the
// CSINode.
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

// republish publishes a driver's data about the node, unless the driver was unregistered or
// replaced in the meantime.
func (m *Manager) republish(ctx context.Context, d *driver, info *csi.NodeGetInfoResponse) error {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	if now, err := m.driver(d.name); err != nil || now != d {
		return nil
	}
	return m.publish(ctx, d.name, info)
}

// renew asks each driver whose update period has passed how many volumes the node can have, and
// publishes the answers. It returns the time of the next update, or the zero time if no driver has
// an update period.
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
