// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// errLabelled is what users see of a volume that pods have with another label.
var errLabelled = errors.New("other pods use it")

// contextOf is the SELinux label that a driver is to mount a volume with, so that nobody has to
// label its files one by one; "" if it does not do that, or there is none.
func contextOf(d *storagev1.CSIDriver, labels []string) (string, error) {
	switch {
	case d == nil || d.Spec.SELinuxMount == nil || !*d.Spec.SELinuxMount || len(labels) == 0:
		return "", nil
	case len(labels) > 1:
		return "", fmt.Errorf("multiple SELinux labels found: %s", strings.Join(labels, ","))
	}
	return labels[0], nil
}

// settleLabel settles what label a volume is mounted with. One that the pod has already keeps
// that which it has; one that was left staged with another is unstaged first. The caller holds
// the volume.
func (m *Manager) settleLabel(ctx context.Context, vol *volume, r *request) error {
	m.mu.Lock()
	has, mine, staged := vol.context, vol.users[r.place], vol.staged != nil
	m.mu.Unlock()
	switch {
	case mine:
		r.context = has
	case staged && has != r.context:
		err := m.unstage(ctx, vol)
		m.mu.Lock()
		staged = vol.staged != nil
		m.mu.Unlock()
		if err == nil && staged {
			err = errLabelled
		}
		if err != nil {
			m.cfg.Metrics.Labels.Other(vol.id.driver)
			return fmt.Errorf("volume has the SELinux label %q, not %q: %w", has, r.context, err)
		}
	}
	if r.context != "" {
		if !mine {
			m.cfg.Metrics.Labels.Admitted(vol.id.driver)
		}
		r.options = append(slices.Clone(r.options), fmt.Sprintf("context=%q", r.context))
	}
	return nil
}
