// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// What a volume's group gets on top of the modes that are there.
const (
	groupReadWrite fs.FileMode = 0o660
	groupReadOnly  fs.FileMode = 0o440
	groupEnter     fs.FileMode = 0o110
)

// fsGroup returns the group that is to own the pod's volumes, if there is one.
func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// singleUser returns the user that all containers of the pod run as, if they say so and agree.
func singleUser(pod *v1.Pod) *int64 {
	var podUser, user *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		podUser = sc.RunAsUser
	}
	agree := func(sc *v1.SecurityContext) bool {
		own := podUser
		if sc != nil && sc.RunAsUser != nil {
			own = sc.RunAsUser
		}
		if own == nil || user != nil && *user != *own {
			return false
		}
		user = own
		return true
	}
	for i := range pod.Spec.InitContainers {
		if !agree(pod.Spec.InitContainers[i].SecurityContext) {
			return nil
		}
	}
	for i := range pod.Spec.Containers {
		if !agree(pod.Spec.Containers[i].SecurityContext) {
			return nil
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if !agree(pod.Spec.EphemeralContainers[i].SecurityContext) {
			return nil
		}
	}
	return user
}

// applyGroup gives the files of a persistent volume to the pod's group, unless the
// pod is content with the group of its root.
func applyGroup(pod *v1.Pod, dir string, readOnly bool) error {
	group := fsGroup(pod)
	if group == nil || readOnly {
		return nil
	}
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	if policy != nil && *policy == v1.FSGroupChangeOnRootMismatch && groupMatches(dir, *group, readOnly) {
		return nil
	}
	return changeGroup(dir, *group, readOnly)
}

// changeGroup gives everything in dir to the group: files become readable (and writable) for it, and
// directories hand it on to what is made in them. The root comes last, so that its
// state tells whether all below it is done.
func changeGroup(dir string, group int64, readOnly bool) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // files of a running pod may go at any time
			return nil
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
			return nil
		}
		return changeGroupOf(path, group, readOnly)
	})
	if err != nil {
		return fmt.Errorf("change volume's group: %w", err)
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := changeGroupOf(dirs[i], group, readOnly); err != nil {
			return fmt.Errorf("change volume's group: %w", err)
		}
	}
	return nil
}

func changeGroupOf(path string, group int64, readOnly bool) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return nil // chmod would change what it points at
	}
	return os.Chmod(path, info.Mode()|groupMask(info, readOnly))
}

func groupMask(info fs.FileInfo, readOnly bool) fs.FileMode {
	mask := groupReadWrite
	if readOnly {
		mask = groupReadOnly
	}
	if info.IsDir() {
		mask |= fs.ModeSetgid | groupEnter
	}
	return mask
}

// groupMatches tells whether the root of a volume already belongs to the group with the right mode,
// which is all that fsGroupChangePolicy OnRootMismatch looks at.
func groupMatches(dir string, group int64, readOnly bool) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mask := groupMask(info, readOnly)
	return ok && int64(stat.Gid) == group && info.Mode()&mask == mask
}
