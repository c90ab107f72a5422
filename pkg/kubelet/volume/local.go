// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

const (
	// defaultFSType is the file system with which an empty device is formatted if the volume names
	// no fsType.
	defaultFSType = "ext4"
	// reasonAlreadyMounted is the reason of the event for a pod whose volume is already used by
	// another pod with another fsGroup.
	reasonAlreadyMounted = "AlreadyMountedVolume"
)

// makeLocal sets up a local volume. A volume with a directory is bind-mounted, a device with a file
// system is mounted, and a block volume is returned as a device.
func (m *Manager) makeLocal(pod *v1.Pod, pv *v1.PersistentVolume, readOnly bool) (prepared, error) {
	path := pv.Spec.Local.Path
	if isBlock(pv) {
		p, err := blockDevice(path, readOnly)
		p.local = pv
		return p, err
	}
	if err := checkBacksteps(path); err != nil {
		return prepared{}, fmt.Errorf("invalid path: %s %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return prepared{}, fmt.Errorf("path %q does not exist: %w", path, err)
	}
	dir := m.volumeDir(pod.UID, pluginLocal, pv.Name)
	if err := makeDir(dir, 0o750); err != nil {
		return prepared{}, err
	}
	other, err := m.elsewhere(pod.UID, pv.Name)
	switch {
	case err != nil:
	case info.IsDir():
		err = bindMount(path, dir, readOnly)
	case !isBlockDevice(info.Mode()):
		err = fmt.Errorf("only directories and block devices are supported: %s", path)
	case other != "":
		// A device cannot be mounted read-only and writable at the same time, so bind-mount the
		// directory at which the other pod has it mounted.
		err = bindMount(other, dir, readOnly)
	default:
		err = mountDevice(path, dir, pv, readOnly)
	}
	if err != nil {
		return prepared{}, errors.Join(err, removeEmptyDir(dir))
	}
	if other != "" {
		m.compareGroup(pod, pv.Name, dir)
	} else if err := applyGroup(pod, dir, readOnly); err != nil {
		return prepared{}, err
	}
	return prepared{path: dir, readOnly: readOnly, managed: !readOnly, local: pv}, nil
}

// enlargeLocal grows the file system on a device to the device's size. It does nothing for a volume
// that is a directory, or a device that containers use directly.
func enlargeLocal(pv *v1.PersistentVolume, dir string) error {
	if isBlock(pv) {
		return nil
	}
	info, err := os.Stat(pv.Spec.Local.Path)
	if err != nil || info.IsDir() {
		return err
	}
	_, err = mount.NewResizeFs(utilexec.New()).Resize(pv.Spec.Local.Path, dir)
	return err
}

// elsewhere returns the directory at which a local volume is mounted for another pod of the node.
// It returns "" if no other pod has it mounted.
func (m *Manager) elsewhere(uid types.UID, volume string) (string, error) {
	dirs, err := filepath.Glob(m.volumeDir("*", pluginLocal, volume))
	if err != nil {
		return "", fmt.Errorf("volumes of other pods: %w", err)
	}
	for _, dir := range dirs {
		if dir == m.volumeDir(uid, pluginLocal, volume) {
			continue
		}
		mounted, err := isMount(dir)
		if mounted {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", nil
}

// compareGroup records a warning event if the directory of a volume that another pod already uses
// has a group other than this pod's fsGroup. It does not change the group.
func (m *Manager) compareGroup(pod *v1.Pod, volume, dir string) {
	group := fsGroup(pod)
	info, err := os.Stat(dir)
	if group == nil || err != nil || m.cfg.Event == nil {
		return
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int64(stat.Gid) != *group {
		m.cfg.Event(pod, v1.EventTypeWarning, reasonAlreadyMounted, fmt.Sprintf(
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
			*group, volume, stat.Gid))
	}
}

// mountDevice mounts a device at dir. A device without a file system is formatted first.
func mountDevice(device, dir string, pv *v1.PersistentVolume, readOnly bool) error {
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return err
	}
	fsType := defaultFSType
	if t := pv.Spec.Local.FSType; t != nil && *t != "" {
		fsType = *t
	}
	options := pv.Spec.MountOptions
	if readOnly {
		options = append([]string{"ro"}, options...)
	}
	mounter := mount.NewSafeFormatAndMount(mount.New(""), utilexec.New())
	if err := mounter.FormatAndMount(device, dir, fsType, options); err != nil {
		return fmt.Errorf("mount device: %w", err)
	}
	return nil
}
