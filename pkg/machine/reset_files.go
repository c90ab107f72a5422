// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/network"
	"keelson.dev/keelson/pkg/provision"
)

const (
	kubeletDir     = "/var/lib/kubelet"
	networkConfigs = "/etc/cni/net.d"
	networkPlugins = "/opt/cni/bin"
	runtimeConfig  = "/etc/containerd"
	logindConfig   = "/etc/systemd/logind.conf.d"
	// logindFile is how long the kubelet may delay a shutdown of the machine.
	logindFile = logindConfig + "/99-kubelet.conf"
)

// releaseLinks returns the links to releases. Those with the extension .new exist for a moment only, and
// switching only during an upgrade.
func releaseLinks() []string {
	return []string{current, current + ".new", switching, switching + ".new"}
}

// trees returns the directories that Reset removes with everything in them.
func trees() []string {
	return []string{
		kubeletDir, provision.ProxyRoot, provision.ContainerdRoot, "/run/containerd", storeDir, "/var/lib/cni", state,
		string(controlDir), "/var/log/pods", "/var/log/containers", "/var/log/kubernetes",
	}
}

// ownFiles returns single files that Reset removes, in directories of others.
func ownFiles() []string {
	return []string{runtimeConfig + "/config.toml", networkConfigs + "/" + network.ConfigFile}
}

// shared returns directories in which others may have files, too. They are removed if they are empty.
// A directory comes before its parent.
func shared() []string {
	return []string{
		runtimeConfig + "/certs.d", runtimeConfig, networkConfigs, filepath.Dir(networkConfigs),
		networkPlugins, filepath.Dir(networkPlugins), logindConfig,
		"/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd", // containerd makes them when it starts
	}
}

// removeFiles removes all files except the machine's configuration and the link to its release.
func removeFiles(ctx context.Context) error {
	var errs []error
	for _, dir := range trees() {
		errs = append(errs, removeTree(dir))
	}
	for _, file := range ownFiles() {
		// The file with the extension .new remains if a program was killed while it replaced the file.
		errs = append(errs, removeFile(file), removeFile(file+".new"))
	}
	errs = append(errs, removeLinksInto(networkPlugins, releases))
	if exists(logindFile) {
		errs = append(errs, removeFile(logindFile),
			systemctl(ctx, "kill", "--kill-who=main", "--signal=HUP", "systemd-logind.service"))
	}
	for _, dir := range shared() {
		errs = append(errs, removeEmpty(dir))
	}
	return errors.Join(errs...)
}

// removeConfiguration removes the files by which Installed recognizes the machine.
func removeConfiguration() error {
	var errs []error
	for _, link := range releaseLinks() {
		errs = append(errs, removeFile(link))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeTree(ownConfig)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("file: %w", err)
	}
	return nil
}

// removeEmpty removes a directory if it is empty. It keeps links and mount points.
func removeEmpty(dir string) error {
	err := unix.Rmdir(dir)
	for _, fine := range []error{unix.ENOENT, unix.ENOTEMPTY, unix.ENOTDIR, unix.EBUSY} {
		if errors.Is(err, fine) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return nil
}

// removeTree removes a directory and everything in it. If the operator has put the directory on
// another file system, by a link or a mount, it is only emptied.
func removeTree(dir string) error {
	at, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	below, err := mountsBelow(at)
	if err != nil {
		return err
	}
	if len(below) > 0 { // it may have data that belong to others, for example on a file server
		return fmt.Errorf("%s: %w: %s", dir, errMounted, strings.Join(below, ", "))
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(at, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeEmpty(dir)
}

var errMounted = errors.New("file systems are still mounted there")

// removeLinksInto removes the links in a directory and its subdirectories that lead into the directory
// target.
func removeLinksInto(dir, target string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, target+"/") {
			return err
		}
		return os.Remove(path)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("links in %s: %w", dir, err)
	}
	return nil
}

// unmountAll unmounts all file systems below the directories that Reset removes.
func unmountAll() error {
	var errs []error
	for _, dir := range trees() {
		at, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // it does not exist
		}
		below, err := mountsBelow(at)
		errs = append(errs, err)
		for _, mount := range slices.Backward(below) {
			// A mount is removed even if a process has files open there. EINVAL means that the mount
			// has ended with another one.
			if err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				errs = append(errs, fmt.Errorf("unmount %s: %w", mount, err))
			}
		}
	}
	return errors.Join(errs...)
}

// mountsBelow returns the mount points below dir, but not dir itself, in the order in which they were
// mounted.
func mountsBelow(dir string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	var out []string
	for _, i := range infos {
		if i.Mountpoint != dir {
			out = append(out, i.Mountpoint)
		}
	}
	return out, nil
}
