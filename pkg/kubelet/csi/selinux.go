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

	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// errLabelled is returned if other pods use the volume with a different SELinux label.
var errLabelled = errors.New("other pods use it")

// contextOf returns the SELinux label with which the volume is mounted, so that its files need no
// labels of their own. It returns "" if the driver does not support that or no label is required.
// It returns an error if the pod's containers require different labels.
func contextOf(d *storagev1.CSIDriver, labels []string) (string, error) {
	switch {
	case d == nil || d.Spec.SELinuxMount == nil || !*d.Spec.SELinuxMount || len(labels) == 0:
		return "", nil
	case len(labels) > 1:
		return "", fmt.Errorf("multiple SELinux labels found: %s", strings.Join(labels, ","))
	}
	return labels[0], nil
}

// settleLabel decides with which label a volume is mounted. If the pod already uses the volume, the
// label stays the same. If the volume is staged with another label and no pod uses it, settleLabel
// unstages it first. If other pods use it, settleLabel returns an error. The caller holds
// vol.asking.
func (m *Manager) settleLabel(ctx context.Context, vol *volume, v Volume, r *request) error {
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
			m.cfg.Metrics.Labels.VolumeMismatch(vol.id.driver, metrics.AccessMode(v.PV))
			return fmt.Errorf("volume has the SELinux label %q, not %q: %w", has, r.context, err)
		}
	}
	if r.context != "" {
		r.options = append(slices.Clone(r.options), fmt.Sprintf("context=%q", r.context))
	}
	return nil
}

// countLabelled counts a volume that was mounted with a label: once, however many pods use it and however often
// it is mounted, until no pod uses it any more. The caller holds vol.asking.
func (m *Manager) countLabelled(vol *volume, v Volume, r *request) {
	if r.context != "" && !vol.counted {
		vol.counted = true
		m.cfg.Metrics.Labels.Admitted(vol.id.driver, metrics.AccessMode(v.PV))
	}
}
