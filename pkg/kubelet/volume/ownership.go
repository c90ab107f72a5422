// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/beneath"
)

// The permissions that the fsGroup gets on files and directories, in addition to the existing mode.
const (
	groupReadWrite uint32 = 0o660
	groupReadOnly  uint32 = 0o440
	groupEnter     uint32 = 0o110
)

// allModes is the mask of a mode's permission, set-ID and sticky bits, without the file type.
const allModes uint32 = 0o7777

// fsGroup returns the pod's fsGroup, which must own its volumes, or nil if it has none.
func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// singleUser returns the user as which all containers of the pod run. It returns nil if they differ
// or a container specifies no user.
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

// applyGroup changes the group of a persistent volume's files to the pod's fsGroup. With the policy
// OnRootMismatch it does nothing if the volume's root directory already has that group and its
// permissions.
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

// changeGroup changes the group of everything in dir. It adds read and write permissions for the
// group (only read if readOnly), and sets the set-group-ID bit of directories, so that new files
// inherit the group. It changes the root directory last: a root with the right group means that all
// files below are done. Containers may use the volume meanwhile.
func changeGroup(dir string, group int64, readOnly bool) error {
	c := groupChange{group: int(group), readOnly: readOnly}
	if err := (tree{visit: c.visit}).walk(dir); err != nil {
		return fmt.Errorf("change volume's group: %w", err)
	}
	return nil
}

// groupChange is a change of the group of all files and directories of a volume.
type groupChange struct {
	group    int
	readOnly bool
}

// done reports whether a file already has the group and the permissions.
func (c groupChange) done(stat *unix.Stat_t) bool {
	return int(stat.Gid) == c.group && (isLink(stat) || stat.Mode&c.mask(stat) == c.mask(stat))
}

// visit changes the group of the file that fd refers to.
func (c groupChange) visit(fd int, stat *unix.Stat_t) error {
	if c.done(stat) {
		return nil
	}
	if err := unix.Fchownat(fd, "", -1, c.group, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	if !c.needsMode(stat) {
		return nil
	}
	if err := unix.Chmod(beneath.Path(fd), stat.Mode&allModes|c.mask(stat)); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

// needsMode reports whether the mode of a file must be set after chown, either because the group
// lacks permissions or because chown cleared the set-user-ID and set-group-ID bits. Links have no
// mode.
func (c groupChange) needsMode(stat *unix.Stat_t) bool {
	return !isLink(stat) && (stat.Mode&c.mask(stat) != c.mask(stat) || stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0)
}

func isLink(stat *unix.Stat_t) bool { return stat.Mode&unix.S_IFMT == unix.S_IFLNK }

// mask returns the permissions that the group must have on a file.
func (c groupChange) mask(stat *unix.Stat_t) uint32 {
	mask := groupReadWrite
	if c.readOnly {
		mask = groupReadOnly
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		mask |= unix.S_ISGID | groupEnter
	}
	return mask
}

// groupMatches reports whether the root directory of a volume already has the group and its
// permissions. fsGroupChangePolicy OnRootMismatch checks only the root.
func groupMatches(dir string, group int64, readOnly bool) bool {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	return groupChange{group: int(group), readOnly: readOnly}.done(&stat)
}
