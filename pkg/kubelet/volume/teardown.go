// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// Teardown unmounts and removes all volumes of the pod, including those of an earlier process. It
// is idempotent. It never removes data of a host path or a persistent volume.
func (m *Manager) Teardown(ctx context.Context, uid types.UID) error {
	if !safeName(string(uid)) {
		return fmt.Errorf("pod UID %q is not a file name", uid)
	}
	pv := m.entry(uid)
	pv.mu.Lock()
	defer pv.mu.Unlock()
	pv.pod.Store(nil) // a refresh that waits for pv.mu then does nothing
	for _, p := range pv.ready {
		pv.leaving = append(pv.leaving, p)
	}
	clear(pv.ready)
	pv.show()
	begun := m.cfg.Clock.Now()
	err := m.removeVolumes(ctx, uid)
	m.unmounted(pv.leaving, begun, err)
	if err != nil {
		return err
	}
	m.cfg.Certificates.Forget(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
	m.queue.Forget(uid)
	return nil
}

func safeName(s string) bool { return s != "" && s != "." && s != ".." && !strings.Contains(s, "/") }

func (m *Manager) removeVolumes(ctx context.Context, uid types.UID) error {
	if err := unmountBelow(m.subpathsDir(uid)); err != nil {
		return fmt.Errorf("pod %s: %w", uid, err)
	}
	// CSI drivers must unmount their volumes before anything is removed.
	if err := m.cfg.Drivers.Teardown(ctx, uid); err != nil {
		return fmt.Errorf("pod %s: %w", uid, err)
	}
	if err := unmountBelow(m.volumesDir(uid)); err != nil {
		return fmt.Errorf("pod %s: %w", uid, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// No mounts are left below this directory, so removing it deletes only the kubelet's own files.
	if err := os.RemoveAll(m.subpathsDir(uid)); err != nil {
		return fmt.Errorf("remove subPaths: %w", err)
	}
	if err := m.removePlugins(uid); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(m.devicesDir(uid), escape(pluginCSI)), m.devicesDir(uid)} {
		if err := removeIfEmpty(dir); err != nil {
			return err
		}
	}
	marks := filepath.Join(m.podDir(uid), "plugins")
	if err := os.RemoveAll(filepath.Join(marks, escape(pluginEmptyDir))); err != nil {
		return fmt.Errorf("remove marks: %w", err)
	}
	return removeIfEmpty(marks)
}

// removePlugins removes the directories of the pod's volumes. It deletes the content of volumes of
// localPlugins. For other volumes it removes only the empty mount point.
func (m *Manager) removePlugins(uid types.UID) error {
	root := m.volumesDir(uid)
	plugins, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, plugin := range plugins {
		dir := filepath.Join(root, plugin.Name())
		if slices.ContainsFunc(localPlugins[:], func(p string) bool { return escape(p) == plugin.Name() }) {
			if err := removeTree(dir); err != nil {
				return fmt.Errorf("remove volume: %w", err)
			}
			continue
		}
		if err := removeMountPoints(dir); err != nil {
			return err
		}
	}
	return removeIfEmpty(root)
}

func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// removeMountPoints removes the empty directories in dir, and then dir itself.
func removeMountPoints(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		err := os.Remove(path)
		if errors.Is(err, syscall.ENOTEMPTY) {
			err = errors.New("directory is not empty and does not belong to the pod")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return removeIfEmpty(dir)
}

func removeIfEmpty(dir string) error {
	err := os.Remove(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return fmt.Errorf("remove directory: %w", err)
}
