// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// Teardown unpublishes all volumes of a pod, including volumes that an earlier process mounted, and
// unstages those that no other pod uses. After an error, the caller must call it again. A volume
// that cannot be unstaged is not an error, because Run tries again.
func (m *Manager) Teardown(ctx context.Context, pod types.UID) error {
	type use struct {
		volume *volume
		place  place
	}
	m.mu.Lock()
	var uses []use
	for _, v := range m.volumes {
		for p := range v.users {
			if p.pod == pod {
				uses = append(uses, use{v, p})
			}
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, u := range uses {
		errs = append(errs, m.unmount(ctx, u.volume, u.place))
	}
	errs = append(errs, m.unbegun(pod))
	return errors.Join(errs...)
}

func (m *Manager) unmount(ctx context.Context, v *volume, p place) error {
	v.asking.Lock()
	defer v.asking.Unlock()
	if err := m.unpublish(ctx, v, p); err != nil {
		return fmt.Errorf("volume %s: %w", p.spec, err)
	}
	if err := m.unstage(ctx, v); err != nil {
		m.cfg.Log.Warn("Failed to unstage a volume", "volume", p.spec, "driver", v.id.driver, "err", err)
	}
	return nil
}

// unpublish removes a volume from a pod and deletes the record of this use. The caller holds
// v.asking.
func (m *Manager) unpublish(ctx context.Context, v *volume, p place) error {
	d, err := m.driver(v.id.driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	target := m.target(p)
	if _, err := d.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id.handle,
		TargetPath: target}); err != nil {
		return err
	}
	if err := removeTarget(target); err != nil {
		return err
	}
	// Remove the record last. If the kubelet is killed before, the next process finds the record
	// and repeats all steps.
	if err := m.forgetPod(p); err != nil {
		return err
	}
	m.note(v, func() {
		delete(v.users, p)
		v.counted = v.counted && len(v.users) > 0
	})
	return nil
}

// forgetPod removes the record that a pod uses a volume.
func (m *Manager) forgetPod(p place) error {
	leftovers := []string{filepath.Join(m.podDir(p), recordName), m.podDir(p)}
	if p.block {
		leftovers = []string{m.podDir(p)}
	}
	for _, path := range leftovers {
		if err := remove(path); err != nil {
			return err
		}
	}
	return nil
}

// unstage unstages a volume and deletes its record if no pod uses the volume. The caller holds
// v.asking.
func (m *Manager) unstage(ctx context.Context, v *volume) error {
	m.mu.Lock()
	staged := v.staged
	if len(v.users) > 0 {
		staged = nil
	}
	m.mu.Unlock()
	if staged == nil {
		return nil
	}
	d, err := m.driver(v.id.driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	able, err := d.abilities(ctx)
	if err != nil {
		return err
	}
	begun := m.cfg.Clock.Now()
	if able.stages() {
		_, err = d.node.NodeUnstageVolume(ctx,
			&csi.NodeUnstageVolumeRequest{VolumeId: v.id.handle, StagingTargetPath: staged.path})
	}
	if err == nil {
		err = m.forgetStage(v, staged)
	}
	m.cfg.Metrics.Operation("kubernetes.io/csi:"+d.name, metrics.UnmountDevice, m.cfg.Clock.Since(begun), err)
	return err
}

// forgetStage removes the directories and the record of a volume that is no longer staged (mounted
// for the whole node).
func (m *Manager) forgetStage(v *volume, staged *stage) error {
	for _, path := range []string{staged.path, staged.record} {
		if err := removeTarget(path); err != nil {
			return err
		}
	}
	for _, dir := range staged.directories() {
		if err := remove(dir); err != nil {
			return err
		}
	}
	m.note(v, func() { v.staged, v.surely, v.context = nil, false, "" })
	return nil
}

// unbegun removes directories of the pod's volumes that have no record. They exist if an earlier
// process was killed just before it wrote the record, or just after it removed the record.
func (m *Manager) unbegun(pod types.UID) error {
	dirs, err := filepath.Glob(m.podDir(place{pod: pod, spec: "*"}))
	if err != nil {
		return fmt.Errorf("volumes of pod: %w", err)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, recordName)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		err := errors.Join(removeTarget(filepath.Join(dir, mountName)), remove(path+".new"))
		if err == nil {
			err = remove(dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
