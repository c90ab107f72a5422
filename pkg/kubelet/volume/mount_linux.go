// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

// isMount reports whether path is a mount point.
func isMount(path string) (bool, error) {
	mounted, err := mountinfo.Mounted(path)
	if err != nil {
		return false, fmt.Errorf("look for mount: %w", err)
	}
	return mounted, nil
}

// mountTmpfs mounts a memory file system at dir unless dir is a mount point. The volume may contain
// secrets, so it is mounted with noswap if the kernel supports that (since 6.4).
func (m *Manager) mountTmpfs(dir string, size int64) error {
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return err
	}
	options := "mode=1777" // the same mode as the kernel's default for tmpfs
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RELATIME, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RELATIME, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}

func mountHugePages(pod *v1.Pod, dir string, medium v1.StorageMedium) error {
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return err
	}
	size, err := hugePageSize(pod, medium)
	if err != nil {
		return err
	}
	options := fmt.Sprintf("mode=0777,pagesize=%d", size.Value())
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, options); err != nil {
		return fmt.Errorf("mount hugetlbfs: %w", err)
	}
	return nil
}

// bindMount bind-mounts source at dir unless dir is a mount point.
func bindMount(source, dir string, readOnly bool) error {
	mounted, err := isMount(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount(source, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("make bind of %s read-only: %w", source, err), unix.Unmount(dir, unix.MNT_DETACH))
	}
	return nil
}

// unmountBelow unmounts everything at and below dir, in the reverse order of mounting.
func unmountBelow(dir string) error {
	below, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for i := len(below) - 1; i >= 0; i-- {
		// MNT_DETACH removes the mount even if a process still has a file open on it. Otherwise
		// that process would block the removal of the pod's volumes.
		if err := unix.Unmount(below[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", below[i], err)
		}
	}
	below, err = mountsBelow(dir)
	if err == nil && len(below) > 0 {
		err = fmt.Errorf("still mounted: %s", below[0])
	}
	return err
}

// mountsBelow returns the mount points at and below dir, in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	out := make([]string, len(infos))
	for i, info := range infos {
		out[i] = info.Mountpoint
	}
	return out, nil
}
